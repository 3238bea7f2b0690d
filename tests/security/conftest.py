"""One realm for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.realm import Realm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with Realm(tmp_path_factory.mktemp("kerberos")) as server:
        yield server


@pytest.fixture
def no_ticket(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process belongs to the realm; nobody has logged in."""
    monkeypatch.setenv("KRB5_CONFIG", str(realm.configuration))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.home}/nobody")


@pytest.fixture
def ticket(realm: Realm, no_ticket: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has a ticket as ``airflow``."""
    keytab = realm.home / "airflow.keytab"
    if not keytab.exists():
        realm.keytab("airflow")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.ticket('airflow', keytab)}")
