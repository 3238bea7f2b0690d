"""One realm for all. Every test of this directory checks that a refusal has its reason in one line, without a password."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Protocol

import pytest

from airflow_hivelock.locks import AccessDenied, HiveLockError, connect
from tests.support.patience import until
from tests.support.servers.certificates import Authority
from tests.support.servers.realm import Realm

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORDS = ("hush-hush", "hush-key", "wrong-one")
"""What the tests of this directory log in with, right and wrong."""


class Refused(Protocol):
    """Connect to *url*; *error* must follow, with a message that the pattern *said* finds."""

    def __call__(self, url: str, said: str, error: type[HiveLockError] = AccessDenied) -> None: ...


@pytest.fixture(autouse=True)
def nothing_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No password is, right or wrong, at whatever level, by whatever library."""
    caplog.set_level(0)
    yield
    logged = "\n".join(
        caplog.handler.format(record) for when in ("setup", "call") for record in caplog.get_records(when)
    )
    assert not [password for password in PASSWORDS if password in logged]


@pytest.fixture
def refused() -> Refused:
    def refused(url: str, said: str, error: type[HiveLockError] = AccessDenied) -> None:
        with pytest.raises(error, match=said) as told:
            connect(url).close()
        assert type(told.value) is error
        assert "\n" not in str(told.value)
        shown = "".join(traceback.format_exception(told.value))
        assert not [password for password in PASSWORDS if password in shown]

    return refused


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that has signed nothing of the servers'."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="session")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with Realm(tmp_path_factory.mktemp("kerberos")) as server:
        yield server


@pytest.fixture
def no_ticket(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process belongs to the realm, without a login."""
    monkeypatch.setenv("KRB5_CONFIG", str(realm.configuration))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.home}/nobody")


@pytest.fixture
def ticket(realm: Realm, no_ticket: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has a ticket as ``airflow``."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.ticket('airflow')}")


@pytest.fixture
def old_ticket(realm: Realm, no_ticket: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ticket of this process has expired."""
    cache = realm.ticket("late", life_s=1)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    until(lambda: not realm.valid(cache), "it to expire")
    time.sleep(1)  # GSSAPI goes by whole seconds, and takes a ticket in its last one, too
