// The rules for the page's scripts. The compiler finds unknown names, so that no list of the browser's names is needed.

const js = require("@eslint/js");

module.exports = [
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  js.configs.recommended,
  {
    rules: {
      "no-undef": "off",
      "curly": ["error", "multi-line"],
      "eqeqeq": "error",
      "no-restricted-globals": ["error", "event", "name", "status", "parent", "top", "self", "origin", "length", "open", "close"],
      "no-shadow": "error",
      "no-unneeded-ternary": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
];
