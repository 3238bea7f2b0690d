"""The commands in the documents are run, page by page: hivelock's own for real, others if they can be checked without
them.

A command must print the lines after it in a ``console`` block, if there are any; ``…`` matches any text.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from dataclasses import dataclass
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from importlib.metadata import metadata
from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from airflow.cli import cli_parser
from airflow.models import Connection

import airflow_hivelock
from airflow_hivelock import hooks
from airflow_hivelock.cli import command as cli
from tests.docs import connections
from tests.docs.blocks import PROJECT, Block, Kind, blocks
from tests.docs.conftest import STAND_INS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHELL = re.compile(r"&&|\|\||[|;{}()<>`*]|\$\(")
"""What only a shell understands; looked for outside of quotes."""

TARGETS = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
PACKAGE = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
WHEEL = f"dist/airflow_hivelock-{airflow_hivelock.__version__}-py3-none-any.whl"
DEADLINE_S = "240"


@dataclass(frozen=True)
class Command:
    """A command, and its output in the page; None if the page has none."""

    block: Block
    text: str
    shows: str | None

    def __str__(self) -> str:
        return f"{self.block}: {self.text}"


def commands(block: Block) -> Iterator[Command]:
    """The block's commands. One may continue over several lines."""
    text = block.text.replace("\\\n", "")
    if block.word == "sh":
        yield from (Command(block, line, None) for line in text.splitlines() if line and not line.startswith("#"))
        return
    for command in text.removeprefix("$ ").split("\n$ "):
        line, _, shows = command.partition("\n")
        yield Command(block, line, shows or None)


@dataclass(frozen=True)
class Pages:
    """Runs commands."""

    _here: Callable[[str], str]
    _capsys: pytest.CaptureFixture[str]

    def run(self, command: Command, patch: pytest.MonkeyPatch) -> None:
        unquoted = re.sub(r"'[^']*'|\"[^\"]*\"|\s#.*", "", command.text)
        words = shlex.split(self._here(command.text), comments=True)
        if SHELL.search(unquoted):
            self._in_bash(command)
            return
        match words:
            case ["export", setting]:
                name, _, value = setting.partition("=")
                patch.setenv(name, value)
                if name.startswith("AIRFLOW_CONN_"):
                    connections.read(Connection.from_json(value), self._here)
            case ["hivelock", *arguments]:
                self._compare(command, *self._printed(lambda: cli.main(arguments)))
            case ["airflow", *arguments]:
                self._airflow(command, arguments)
            case ["make", target, *settings]:
                assert target in TARGETS, f"{command}: make has no such target"
                assert all("=" in setting for setting in settings), command
            case ["pip", "wheel", "--no-deps", "--wheel-dir", "dist", "."]:
                pass
            case ["pip", "install", airflow, "--constraint", constraints]:
                version = airflow.removeprefix("apache-airflow==")
                assert constraints.endswith(f"/constraints-{version}/constraints-3.11.txt"), command
            case ["pip", "install", "--no-deps", wheel]:
                assert wheel == WHEEL, command
            case ["pip", "install", wheel, _] if wheel.startswith("./dist/"):
                extra = wheel.removeprefix(f"./{WHEEL}[").removesuffix("]")
                assert extra in PACKAGE["optional-dependencies"], command
            case ["pip", "install", *packages] if packages[0].startswith("kazoo"):
                assert set(packages) <= {*PACKAGE["dependencies"], "tabulate"}, command
            case ["pip", "install", airflow] if found := re.fullmatch(r"apache-airflow\[(\w+)\]==[\d.]+", airflow):
                assert found[1] in metadata("apache-airflow").get_all("Provides-Extra", []), command
            case ["pip", "install", package]:
                name, extras = re.fullmatch(r"([\w-]+)(?:\[([\w,]+)\])?", package).groups()  # type: ignore[union-attr]
                assert name == PACKAGE["name"], f"{command}: this is {PACKAGE['name']}"
                known = PACKAGE["optional-dependencies"].keys()
                assert set((extras or "").split(",")) - {""} <= known, f"{command}: there are the extras {known}"
            case ["pip", "uninstall", package]:
                assert package == PACKAGE["name"]
            case _:
                pytest.fail(f"{command}: nothing is known to run this; tests/docs/test_shell.py has what is")

    def _airflow(self, command: Command, arguments: list[str]) -> None:
        """Parsed by Airflow itself; ``airflow hivelock`` is also run, and a connection read.

        Not a command of a provider that is not here.
        """
        if arguments[0] == "celery" and find_spec("airflow.providers.celery") is None:
            return
        found = cli_parser.get_parser().parse_args(arguments)
        if arguments[0] == "hivelock":
            self._compare(command, *self._printed(lambda: found.func(found)))
        elif arguments[:2] == ["connections", "add"]:
            names = ("host", "port", "schema", "login", "password", "extra")
            fields = {name: getattr(found, f"conn_{name}") for name in names}
            connections.read(Connection(conn_id=found.conn_id, conn_type=found.conn_type, **fields), self._here)

    def _printed(self, program: Callable[[], int | None]) -> tuple[int, str]:
        self._capsys.readouterr()
        try:
            code = program()
        except SystemExit as end:
            code = int(end.code or 0)
        return code or 0, "".join(self._capsys.readouterr())

    def _in_bash(self, command: Command) -> None:
        done = subprocess.run(
            ["timeout", DEADLINE_S, "bash", "-c", self._here(command.text)],  # it ends everything that it has started
            capture_output=True,
            text=True,
            check=False,
            cwd=STAND_INS,
        )
        self._compare(command, done.returncode, done.stdout + done.stderr)

    @staticmethod
    def _compare(command: Command, code: int, printed: str) -> None:
        shows = command.shows or ""
        assert bool(code) == ("hivelock: " in shows), f"{command}\nended with {code}:\n{printed}"
        same = OutputChecker().check_output(shows.replace("…", "..."), printed, ELLIPSIS | NORMALIZE_WHITESPACE)
        assert same or not shows, f"{command}\nprinted:\n{printed}"


def by_page() -> list[tuple[str, list[Block]]]:
    return [(page, list(found)) for page, found in groupby(blocks(Kind.SHELL), key=lambda block: block.page)]


@pytest.mark.integration
@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(("page", "found"), by_page(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_commands_of_a_page_do_what_it_says(
    page: str,
    found: list[Block],
    here: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = here("zookeeper://zk1:2181/hive_zookeeper_namespace")
    monkeypatch.setenv(cli.URL, url)
    monkeypatch.setenv("AIRFLOW_CONN_HIVELOCK_DEFAULT", connections.of(url))
    pages = Pages(here, capsys)
    for block in found:
        for command in commands(block):
            monkeypatch.setattr(hooks, "_managers", {})  # each is a process of its own
            pages.run(command, monkeypatch)
