"""ZooKeeper in a Kerberos realm: with a ticket, without, with an old one, and for another service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import AccessDenied, StoreUnavailable, connect
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.support.servers import ZooKeeperServer
from tests.support.servers.realm import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers.realm import Realm
    from tests.system.security.conftest import Refused

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
    properties = {**realm.properties, "java.security.auth.login.config": str(jaas)}
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


@pytest.mark.usefixtures("ticket")
def test_of_several_hosts_one_may_be_away(url: str) -> None:
    with connect(f"{url.replace('//', '//localhost:1,')}&chroot=/below") as manager:
        assert manager.release(manager.acquire(owner="me", writes=[DAY]))
        assert _session(manager.backend)._zk.exists("/below/airflow_hivelock")


@pytest.mark.usefixtures("no_ticket")
def test_no_ticket_is_told_at_once(url: str, refused: Refused) -> None:
    refused(url, r"no Kerberos ticket for zookeeper@localhost: No Kerb.*Run kinit")


@pytest.mark.usefixtures("old_ticket")
def test_an_expired_ticket_is_told_at_once(url: str, refused: Refused) -> None:
    refused(url, r"no Kerberos ticket for zookeeper@localhost: .*expired.*Run kinit")


@pytest.mark.usefixtures("ticket")
def test_a_service_that_the_realm_does_not_know_is_named(url: str, refused: Refused) -> None:
    refused(
        f"{url}&kerberos_service_name=zk", r"ticket for zk@localhost: Server .*not found in Kerb.*kerberos_service_name"
    )


@pytest.mark.usefixtures("ticket")
def test_a_server_that_is_somebody_else_is_told(url: str, realm: Realm, refused: Refused) -> None:
    realm.keytab("zk2/localhost")
    refused(f"{url}&kerberos_service_name=zk2", "refuses this process's Kerberos principal")


def test_a_server_that_wants_a_ticket_says_so(url: str, refused: Refused) -> None:
    refused(url.replace("auth=KERBEROS&", ""), "refuses a client without credentials")


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
    assert isinstance(backend.store.client, KazooSession)
    return backend.store.client
