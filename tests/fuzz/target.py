"""One kind of hostile input, and what must hold for it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.strategies import SearchStrategy

CORPUS = Path(__file__).parent / "corpus"

SMALL = 10_000
"""Bytes that must not cost more than :data:`CPU_S`, by far: what is squared takes longer, a busy machine does not."""

CPU_S = 5.0


@dataclass(frozen=True)
class Target:
    """:param run: raises for a broken promise; what is refused as it should be, it swallows.
    :param inputs: what Hypothesis makes up.
    """

    name: str
    run: Callable[[bytes], None]
    inputs: SearchStrategy[bytes]

    def check(self, data: bytes) -> None:
        """Run it, and hold it to its time."""
        began = time.thread_time()
        self.run(data)
        if len(data) < SMALL and (took_s := time.thread_time() - began) > CPU_S:
            # A garbage collection or an import of other code may have taken the time, so measure again.
            began = time.thread_time()
            self.run(data)
            again_s = time.thread_time() - began
            assert min(took_s, again_s) < CPU_S, f"{self.name}: {again_s:.1f} s of CPU for {len(data)} bytes"

    def corpus(self) -> Iterator[bytes]:
        """The inputs in the repository."""
        for path in sorted((CORPUS / self.name).glob("*")):
            yield path.read_bytes()


ODD_TEXT = st.text(max_size=12) | st.sampled_from(
    [
        *(
            "",
            " ",
            "\x00",
            "\n",
            "\x1b[2J",
            "é",
            "\ud800",
            "\u202e",
            "\U0001f600",
            "..",
            "../..",
            "/",
            "a/b",
            "-1",
            "0",
        ),
        *("'", '"; drop table t', "%", "%00", "%2F", "x" * 5_000, "9" * 5_000, "NaN", "1e999", "null", "<b>"),
    ]
)
ODD_NUMBERS = (
    st.integers()
    | st.floats(allow_nan=True)
    | st.sampled_from([0, -1, 2**31, 2**63, -(2**63), 2**64, 10**400, 1e300, -1e300, True])
)
ODD = st.recursive(
    st.none() | st.booleans() | ODD_NUMBERS | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=6,
)
"""Any value of JSON."""

DEEP = b"[" * 9_000


@st.composite
def damaged(draw: st.DrawFn, good: dict[str, Any]) -> bytes:
    """JSON of *good* with some odd, missing or additional values; or invalid JSON."""
    data = dict(good)
    for name in draw(st.lists(st.sampled_from([*good, "more"]), max_size=3)):
        if draw(st.booleans()) and name in data and isinstance(data[name], dict | list) and data[name]:
            data[name] = _damaged_inside(draw, data[name])
        elif draw(st.integers(0, 5)) == 0:
            data.pop(name, None)
        else:
            data[name] = draw(ODD)
    text = json.dumps(data).encode()
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return draw(st.sampled_from([DEEP, b"{" * 5, b"", b"null", b"[]", b"5", b"\xff\xfe", b'{"format": 2}']))
    if kind == 1:
        place = draw(st.integers(0, len(text)))
        return text[:place] + draw(st.binary(max_size=4)) + text[place + draw(st.integers(0, 3)) :]
    return text


def _damaged_inside(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict):
        name = draw(st.sampled_from(list(value)))
        return {**value, name: draw(ODD)} if draw(st.booleans()) else {**value, draw(ODD_TEXT): draw(ODD)}
    place = draw(st.integers(0, len(value) - 1))
    inner = value[place]
    odd = _damaged_inside(draw, inner) if isinstance(inner, list | dict) and inner else draw(ODD)
    return [*value[:place], odd, *value[place + 1 :]]


def text_of(data: bytes) -> str:
    """The text of *data*, half characters too: what Python makes of arguments that are not UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def loaded(data: bytes) -> Any:
    """JSON, as Airflow reads an XCom; None for what is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
