// Light or dark, as Airflow is: by the page around the frame, otherwise by Airflow's stored choice, otherwise by the system.

const system = matchMedia("(prefers-color-scheme: dark)");

function outer() {
  try {
    return window.parent === window ? null : window.parent.document.documentElement;
  } catch {
    return null;
  }
}

function isDark() {
  const classes = outer()?.classList;
  if (classes?.contains("dark")) return true;
  if (classes?.contains("light")) return false;
  const stored = localStorage.getItem("theme");
  return stored === "dark" || (stored !== "light" && system.matches);
}

export function followTheme() {
  const set = () => document.documentElement.classList.toggle("dark", isDark());
  const around = outer();
  if (around !== null) new MutationObserver(set).observe(around, { attributes: true, attributeFilter: ["class"] });
  addEventListener("storage", set);
  system.addEventListener("change", set);
  set();
}
