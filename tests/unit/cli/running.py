"""What a run of hivelock gives back."""

from __future__ import annotations

from typing import Protocol


class Run(Protocol):
    """``hivelock`` with these arguments: its exit code, standard output and standard error."""

    def __call__(self, *args: str) -> tuple[int, str, str]: ...


def fails(run: Run, code: int, said: str, *args: str) -> None:
    """It prints nothing but *said*, among its errors."""
    got, out, err = run(*args)
    assert (got, out) == (code, ""), err
    assert said in err
