"""ZooKeeper in a Kerberos realm: with a ticket, without, with an old one, and for another service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import AccessDenied, StoreUnavailable, connect
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.servers import ZooKeeperServer
from tests.servers.realm import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.realm import Realm

pytestmark = pytest.mark.security
DAY = "dw.flights/dt=2013-01-01"


@pytest.fixture(scope="module")
def kerberized(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    jaas = realm.jaas("Server", "zookeeper/localhost", realm.keytab("zookeeper/localhost"))
    config = {
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "enforce.auth.enabled": "true",
        "enforce.auth.schemes": "sasl",
    }
    properties = {
        "java.security.auth.login.config": str(jaas),
        "java.security.krb5.conf": str(realm.configuration),
    }
    home = tmp_path_factory.mktemp("kerberized")
    with ZooKeeperServer(home, config=config, properties=properties) as server:
        yield server


@pytest.fixture
def url(kerberized: ZooKeeperServer) -> str:
    return f"zookeeper://localhost:{kerberized.port}/hive?auth=KERBEROS&timeout_s=20"


@pytest.mark.usefixtures("ticket")
def test_a_ticket_lets_in_and_its_principal_owns_what_it_makes(url: str) -> None:
    with connect(url) as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
        session = _session(manager.backend)
        acls = {acl.id.scheme: acl.id.id for acl in session._zk.get_acls("/airflow_hivelock/requests")[0]}
        assert acls == {"world": "anyone", "sasl": f"airflow@{NAME}"}
        manager.renew(lease)
        assert manager.release(lease)


@pytest.mark.usefixtures("no_ticket")
def test_no_ticket_is_told_at_once(url: str) -> None:
    with pytest.raises(AccessDenied, match=r"no Kerberos ticket for zookeeper@localhost: No Kerb.*Run kinit") as told:
        connect(url)
    assert "\n" not in str(told.value)


@pytest.mark.usefixtures("no_ticket")
def test_an_expired_ticket_is_told_at_once(url: str, realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    keytab = realm.keytab("late")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.ticket('late', keytab, life_s=1)}")
    deadline = time.monotonic() + 60
    told = ""
    while "expired" not in told and time.monotonic() < deadline:
        time.sleep(1)
        try:
            connect(url).close()
        except AccessDenied as error:
            told = str(error)
    assert "expired" in told
    assert "the Kerberos ticket" in told or "Run kinit" in told  # it expired in the midst, or before
    assert "\n" not in told


@pytest.mark.usefixtures("ticket")
def test_a_service_that_the_realm_does_not_know_is_named(url: str) -> None:
    with pytest.raises(
        AccessDenied, match=r"ticket for zk@localhost: Server .*not found in Kerberos.*kerberos_service_name"
    ):
        connect(f"{url}&kerberos_service_name=zk")


def test_a_server_that_wants_a_ticket_says_so(url: str) -> None:
    with pytest.raises(AccessDenied, match="does not let who shows no credentials in"):
        connect(url.replace("auth=KERBEROS&", ""))


@pytest.mark.usefixtures("ticket")
def test_a_lost_ticket_is_an_outage_and_a_new_one_ends_it(
    url: str, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(url) as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
        with monkeypatch.context() as lost:
            lost.setenv("KRB5CCNAME", f"FILE:{realm.home}/nobody")
            _session(manager.backend)._zk._connection._socket.shutdown(2)
            told: StoreUnavailable | None = None
            deadline = time.monotonic() + 60
            while "icket" not in str(told) and time.monotonic() < deadline:
                try:
                    manager.verify(lease)
                except StoreUnavailable as error:
                    told = error
                time.sleep(0.05)
            assert "no Kerberos ticket" in str(told)
            assert not isinstance(told, AccessDenied)
        manager.verify(lease)
        assert manager.release(lease)


def _session(backend: object) -> KazooSession:
    assert isinstance(backend, ZooKeeperBackend)
    assert isinstance(backend.client, KazooSession)
    return backend.client
