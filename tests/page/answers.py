"""The types of ``answers.d.ts``, and whether a value has one of them: a reader of the few forms that the file uses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

TEXT = re.sub(r"//.*", "", (Path(__file__).parent / "answers.d.ts").read_text())
ALIASES = {name: " ".join(text.split()) for name, text in re.findall(r"type (\w+) = ([^;]+);", TEXT)}
FIELDS = {
    name: {field: (mark == "", kind) for field, mark, kind in re.findall(r"(\w+)(\??): ([^;]+);", body)}
    for name, body in re.findall(r"interface (\w+) \{([^}]*)\}", TEXT)
}
"""The fields of each interface: whether each one is always there, and its type."""

CONSTANTS: dict[str, Any] = {"null": None, "true": True, "1": 1}
BASIC: dict[str, type | tuple[type, ...]] = {"string": str, "number": (int, float), "boolean": bool}


def literals(kind: str) -> set[str]:
    """The strings of an alias that is a choice of them."""
    return set(re.findall(r'"(\w+)"', ALIASES[kind]))


class Seen:
    """Compares values with types, and remembers which fields the values have had."""

    def __init__(self) -> None:
        self.fields: set[str] = set()

    def problem(self, value: Any, kind: str) -> str:
        """Why *value* is not of the type *kind*; ``""`` if it is."""
        kind = ALIASES.get(kind, kind)
        if not kind.startswith("["):
            problems = [self._problem(value, each) for each in kind.split(" | ")]
            return min(problems, key=len)
        parts = [part.split(": ") for part in kind[1:-1].split(", ")]
        needed = sum(not name.endswith("?") for name, _ in parts)
        if not isinstance(value, list) or not needed <= len(value) <= len(parts):
            return f"{value!r} is not {kind}"
        return "; ".join(
            filter(None, (self.problem(item, part) for item, (_, part) in zip(value, parts, strict=False)))
        )

    def _problem(self, value: Any, kind: str) -> str:
        if kind.endswith("[]"):
            if not isinstance(value, list):
                return f"{value!r} is not {kind}"
            return "; ".join(filter(None, (self.problem(item, kind[:-2]) for item in value)))
        if kind in FIELDS:
            return self._of_interface(value, kind)
        if kind in ALIASES:
            return self.problem(value, kind)
        fits = isinstance(value, BASIC[kind]) if kind in BASIC else value == CONSTANTS.get(kind, kind.strip('"'))
        return "" if fits else f"{value!r} is not {kind}"

    def _of_interface(self, value: Any, name: str) -> str:
        if not isinstance(value, dict):
            return f"{value!r} is not {name}"
        fields = {field: of for field, of in FIELDS[name].items() if of[1] != "undefined"}
        problems = [f"{name} has no field {field!r}" for field in value.keys() - fields]
        problems += [
            f"{field!r} of {name} is missing" for field, (always, _) in fields.items() if always and field not in value
        ]
        problems += [
            f"{field}: {problem}"
            for field, (_, kind) in fields.items()
            if field in value and (problem := self.problem(value[field], kind))
        ]
        if not problems:
            self.fields |= {f"{name}.{field}" for field in value}
        return "; ".join(problems)


def declared() -> set[str]:
    """All fields of all interfaces, as :attr:`Seen.fields` names them."""
    return {
        f"{name}.{field}"
        for name, fields in FIELDS.items()
        for field, (_, kind) in fields.items()
        if kind != "undefined"
    }
