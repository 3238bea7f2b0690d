"""The figures of a checkout, this one or another: ``python -m tests.structure [CHECKOUT]``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tests.structure import code, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.structure", description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, nargs="?", default=HERE, help="default: this one")
    parser.add_argument("--static", action="store_true", help="only what can be read off the source")
    parser.add_argument("--moves", action="store_true", help="each move, too")
    given = parser.parse_args()
    root = given.checkout.resolve()
    for line in static(root):
        print(line)
    if not given.static:
        for way in walk.ways(root):
            print(f"\n{way.what}: {len(way.files)} files, {sum(way.moves.values())} moves between them")
            print("  " + ", ".join(f"{name} {calls}" for name, calls in way.files.items()))
            if given.moves:
                for move, times in sorted(way.moves.items(), key=lambda item: -item[1]):
                    print(f"  {times:4} {move}")


def static(root: Path) -> Iterator[str]:
    found = code.modules(root)
    circles = code.circles(code.imports(found))
    yield f"import circles, typing and lazy imports counted: {len(circles)}"
    yield from (f"  {' '.join(name.removeprefix(f'{code.PACKAGE}.') for name in circle)}" for circle in circles)
    for folder in (code.PACKAGE, f"{code.PACKAGE}/locks"):
        files = [path for path in (root / folder).glob("*.py") if path.name != "__init__.py"]
        yield f"modules flat in {folder}: {len(files)}"
    yield f"methods of ZooKeeperBackend: {code.methods(found, 'ZooKeeperBackend')}"
    yield f"lines of the package: {sum(map(code.lines, found.values())):,}"
    yield f"lines of the tests: {sum(map(code.lines, (root / 'tests').rglob('*.py'))):,}"
    long = {name: code.lines(path) for name, path in found.items() if code.lines(path) > code.LONG}
    yield f"files of more than {code.LONG} lines: {len(long)}"
    yield from (f"  {name} {lines}" for name, lines in long.items())
    twice = code.twice(found)
    yield f"classes of one name: {len(twice)}"
    yield from (f"  {name}: {' '.join(where)}" for name, where in twice.items())


if __name__ == "__main__":
    main()
