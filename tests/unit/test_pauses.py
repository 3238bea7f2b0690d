"""Pauses between tries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_hivelock.locks import pauses


def test_tries_pause_longer_and_longer_from_the_third_on(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(pauses, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(pauses, "jitter", lambda: 1.0)
    assert list(pauses.tries(10)) == list(range(10))
    assert slept == pytest.approx([0.001, 0.002, 0.004, 0.008, 0.01, 0.01, 0.01, 0.01])
