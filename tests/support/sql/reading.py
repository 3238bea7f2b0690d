"""Which tables a statement names, read with regular expressions: a second opinion that shares nothing with the planner."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.plan.planner import Planner

_COMMENT_OR_TEXT = re.compile(r"""--[^\n]*|/\*.*?\*/|r?'(?:\\.|[^'\\])*'|r?"(?:\\.|[^"\\])*\"""", re.DOTALL)
_INNER_COMMENT = re.compile(r"(/\*(?:(?!\*/|/\*).)*)/\*(?:(?!\*/|/\*).)*\*/", re.DOTALL)
_TOKEN = re.compile(r"`[^`]*`|\w+|[^\s\w]")
_OR_REPLACE = r"create (?:or replace )?(?:external |transactional |managed |materialized )*(?:table|view)"
_CHANGED = re.compile(
    rf"""insert (?:into|overwrite)(?: table)?|drop (?:table|(?:materialized )?view)(?: if exists)?|into table|update
    |alter (?:table|(?:materialized )?view)|truncate table|(?:msck )?repair table|merge into|delete from|{_OR_REPLACE}
    |import (?:external )?table""".replace("\n    ", "")
)
_NAMED = re.compile(rf"export table|analyze table|{_OR_REPLACE} if not exists")
_NO_NAMES = {"columns", "directory", "identifier", "if", "local", "not", "set", "statistics", "table", "view"}
_NO_DATA = re.compile(
    r"(?:explain (?:\w+ )*?)?(?:(?:grant|revoke|set|show|desc|describe)\b|alter trigger |create scheduled )"
)
_IDENTIFIER = re.compile(r"identifier\s*\(((?:\s*'[\w.`]*'\s*\|?\|?)+)\)", re.IGNORECASE)
_FUNCTIONS = {"extract", "ltrim", "overlay", "position", "rtrim", "substr", "substring", "trim"}
_NO_ALIAS = set(
    """
    anti cluster cross distribute except for full group having inner insert intersect join lateral left limit map minus
    natural offset on order outer partition pivot qualify reduce right select semi set sort tablesample timestamp union
    unpivot using values version when where window
    """.split()  # noqa: SIM905
)


class Reading:
    """The objects that the statements of a file have created so far.

    :ivar views: by name, the tables that it reads; none for a temporary table.
    """

    def __init__(self) -> None:
        self.views: dict[str, set[str]] = {}

    def differences(self, text: str, database: str, planner: Planner) -> Iterator[tuple[str, str]]:
        """The locks that the plan lacks, or has without need."""
        changed, named, read = self.named(text, database)
        written = {f"{target.database}.{target.table}" for target in planner.writes}
        seen = {f"{target.database}.{target.table}" for target in planner.looks if target.table}
        seen |= {f"{scan.table.database}.{scan.table.table}" for scan in planner.scans}
        if re.match(r"explain (?!analyze (?!table))", " ".join(_tokens(text)).lower()):
            changed, named = set(), named | changed  # it is only told
        shared = re.search(r"\b(un)?set\s+serdeproperties\b|\badd\b|\bdrop\b", text, re.IGNORECASE)
        for name in changed - self.views.keys() - written - (seen if shared else set()):
            yield "UNDER-LOCKED: changed, and not EXCLUSIVE", name
        for name in (read | named) - self.views.keys() - written - seen:
            if "/" not in name:  # else files, by their path
                yield "UNDER-LOCKED: read, and not locked", name
        if re.match(r"(?:from|insert|with|select|explain select)\b", " ".join(_tokens(text)).lower()):
            listed = re.findall(r"(?:,|\btable) `?(\w+)", " ".join(_tokens(text)).lower())
            listed += re.findall(r'"(\w+)"', text.lower())  # after SET, names are in double quotes
            for name in (
                (written | seen) - changed - read - self.views.keys() - {_in([each], database) for each in listed}
            ):
                yield "STRAY: locked, and not named", name

    def named(self, text: str, database: str) -> tuple[set[str], set[str], set[str]]:
        """Names of what is changed, of what must at least stay, and of what is read, views replaced by what they read."""
        tokens = _tokens(text)
        found: dict[re.Pattern[str], set[str]] = {_CHANGED: set(), _NAMED: set()}
        read: set[str] = set()
        if _NO_DATA.match(" ".join(tokens).lower()):
            return set(), set(), set()
        ctes = list(_ctes(tokens))
        for at, token in enumerate(tokens):
            for pattern, names in found.items():
                said = (" ".join(tokens[at - words : at]).lower() for words in range(1, min(at, 7) + 1))
                if (
                    token.lower() not in _NO_NAMES
                    and any(map(pattern.fullmatch, said))
                    and (parts := _name(tokens, at)[0])
                ):
                    names.add(self._full(parts, database))
            if (token.lower() in ("from", "join") or tokens[at - 1 : at + 1] == ["(", "on"]) and not _no_source(
                tokens, at
            ):
                for place, parts in _listed(tokens, at + 1):
                    if not any(parts == [name] and first < place < last for name, first, last in ctes):
                        full = self._full(parts, database)
                        read |= self.views.get(full, {full})
        return found[_CHANGED], found[_NAMED], read

    def after(self, text: str, database: str) -> None:
        """Remember what *text* makes, or drops."""
        tokens = [token.lower() for token in _tokens(text)]
        said = " ".join(tokens)
        if made := re.match(
            r"(?:create|replace|cache)(?: or replace)?(?P<kept>(?: global| local)?(?: temp| temporary| lazy)?)(?: external)? "
            r"(?P<what>table|view)(?: if not exists)? ",
            said,
        ):
            parts, _ = _name(tokens, len(made[0].split()))
            full = _in(parts or [], "global_temp" if "global" in made["kept"] else database)
            if parts and made["what"] == "view" and "temp" in made["kept"] and "global" not in made["kept"]:
                full = parts[-1]
            if parts and (made["what"] == "view" or said.startswith("cache")):
                self.views[full] = self.named(text, database)[2]
            elif parts and made["kept"]:
                self.views[full] = set()
        elif said.startswith("execute immediate ") and "temporary view" in text.lower():
            self.views |= {name.lower(): set() for name in re.findall(r"'(\w+)'", text)}
        elif said.startswith("alter view "):
            parts, end = _name(tokens, 2)
            if parts and tokens[end : end + 1] == ["as"]:
                self.views[self._full(parts, database)] = self.named(text, database)[2]
            elif parts and tokens[end : end + 2] == ["rename", "to"]:
                old, new = self._full(parts, database), _name(tokens, end + 2)[0] or []
                to = _in(new, database) if "." in old else new[-1]
                self.views[to] = self.views.pop(old, set())
        elif found := re.match(r"drop (?:table|view)(?: if exists)? ", said):
            self.views.pop(self._full(_name(tokens, len(found[0].split()))[0] or [], database), None)

    def _full(self, parts: list[str], database: str) -> str:
        """The name with its database; alone of a temporary view."""
        return parts[0] if len(parts) == 1 and parts[0] in self.views else _in(parts, database)


def _tokens(text: str) -> list[str]:
    while (plain := _INNER_COMMENT.sub(r"\1 ", text)) != text:  # Spark's comments nest
        text = plain
    text = _IDENTIFIER.sub(lambda found: re.sub(r"[^\w.`]", "", found[1]), text)
    return _TOKEN.findall(_COMMENT_OR_TEXT.sub(lambda found: "  " if found[0][0] in "-/" else " ' ", text))


def _name(tokens: list[str], at: int) -> tuple[list[str] | None, int]:
    """The parts of the name at *at*, and where it ends."""
    parts: list[str] = []
    while at < len(tokens) and re.fullmatch(r"`.*`|\w+", tokens[at]):
        parts.append(tokens[at].strip("`").lower())
        at += 1
        if at >= len(tokens) or tokens[at] != ".":
            break
        at += 1
    return parts or None, at


def _in(parts: list[str], database: str) -> str:
    parts = [part for each in parts for part in each.split(".")]
    return ".".join(parts[-2:] if len(parts) > 1 else [database, *parts])


def _no_source(tokens: list[str], at: int) -> bool:
    """Whether FROM is in ``extract(day from x)`` or ``x IS DISTINCT FROM y``, or names the changed table."""
    if tokens[at - 1].lower() in ("distinct", "delete") or tokens[0].lower() == "import":
        return True
    depth = 0
    for back in range(at - 1, -1, -1):
        depth += (tokens[back] == ")") - (tokens[back] == "(")
        if depth < 0:
            return tokens[back - 1].lower() in _FUNCTIONS or tokens[back + 1].lower() in ("both", "leading", "trailing")
    return False


def _listed(tokens: list[str], at: int) -> Iterator[tuple[int, list[str]]]:
    """The names in ``a x, b y, …``, and the position of each."""
    while at < len(tokens) and tokens[at].lower() not in ("lateral", "values", "select", "with", "from", "table"):
        name, end = _name(tokens, at)
        if tokens[at] == "(":
            yield from _listed(tokens, at + 1)
            end = _close(tokens, at) + 1
        elif name is None or (tokens[end : end + 1] == ["("] and len(name) == 1):
            return
        else:
            yield at, name
        while end < len(tokens) and re.fullmatch(r"`.*`|\w+", tokens[end]) and tokens[end].lower() not in _NO_ALIAS:
            end += 1
        if tokens[end : end + 1] != [","]:
            return
        at = end + 1


def _ctes(tokens: list[str]) -> Iterator[tuple[str, int, int]]:
    """The name of each CTE, and between which tokens it is known."""
    for start, token in enumerate(tokens):
        if token.lower() != "with":
            continue
        last, depth = len(tokens), 0
        for end in range(start, len(tokens)):
            depth += (tokens[end] == "(") - (tokens[end] == ")")
            if depth < 0:
                last = end
                break
        recursive = [each.lower() for each in tokens[start + 1 : start + 2]] == ["recursive"]
        at, goes_on = start + 1 + recursive, True
        while goes_on:
            name, at = _name(tokens, at)
            if tokens[at : at + 1] == ["("]:
                at = _close(tokens, at) + 1
            if [each.lower() for each in tokens[at : at + 3]] == ["max", "recursion", "level"]:
                at += 4
            at += at < len(tokens) and tokens[at].lower() == "as"
            if name is None or tokens[at : at + 1] != ["("]:
                break
            close = _close(tokens, at)
            yield name[0], at if recursive else close, last
            goes_on, at = tokens[close + 1 : close + 2] == [","], close + 2


def _close(tokens: list[str], at: int) -> int:
    """The position where the parenthesis at *at* is closed."""
    depth = 0
    for end in range(at, len(tokens)):
        depth += (tokens[end] == "(") - (tokens[end] == ")")
        if depth == 0:
            return end
    return len(tokens)
