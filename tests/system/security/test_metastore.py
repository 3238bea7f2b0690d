"""The metastore in a Kerberos realm, and behind TLS: credentials right and wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockTimeout, StoreUnavailable, connect
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.model import LockObject
from tests.support.servers import Metastore
from tests.support.servers.realm import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers.certificates import Authority
    from tests.support.servers.realm import Realm
    from tests.system.security.conftest import Refused

pytestmark = pytest.mark.security
DAY = "dw.flights/dt=2013-01-01"


def _works(address: str) -> None:
    """As a lock store, and as where partitions are looked up."""
    with connect(f"metastore://{address}") as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
        with pytest.raises(LockTimeout, match="me holds"):
            manager.acquire(owner="other", writes=[DAY])
        assert [holder.owner for holder in manager.show(DAY)] == ["me"]
        manager.renew(lease)
        assert manager.release(lease)
        assert manager.show() == []
    assert connect_catalog(f"thrift://{address}").table(LockObject("dw", "flights")) is None


def _in_realm(realm: Realm, home: Path, protection: str) -> Metastore:
    config = {
        "hadoop.security.authentication": "kerberos",
        "hadoop.rpc.protection": protection,
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.principal": f"hive/localhost@{NAME}",
        "hive.metastore.kerberos.keytab.file": str(realm.keytab("hive/localhost")),
    }
    return Metastore(home, transactional=True, config=config, properties=realm.properties)


@pytest.fixture(scope="module")
def kerberized(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _in_realm(realm, tmp_path_factory.mktemp("kerberized"), "authentication") as server:
        yield f"localhost:{server.port}"


@pytest.mark.usefixtures("ticket")
def test_a_ticket_lets_in(kerberized: str) -> None:
    _works(f"{kerberized}?auth=KERBEROS")


@pytest.mark.usefixtures("ticket")
def test_of_several_hosts_one_may_be_away(kerberized: str) -> None:
    with connect(f"metastore://localhost:1,{kerberized}?auth=KERBEROS") as manager:
        assert manager.release(manager.acquire(owner="me", writes=[DAY]))


@pytest.mark.usefixtures("no_ticket")
def test_no_ticket_is_told_at_once(kerberized: str, refused: Refused) -> None:
    refused(f"metastore://{kerberized}?auth=KERBEROS", r"no Kerberos ticket for hive@localhost: No Kerb.*Run kinit")


@pytest.mark.usefixtures("old_ticket")
def test_an_expired_ticket_is_told_at_once(kerberized: str, refused: Refused) -> None:
    refused(f"metastore://{kerberized}?auth=KERBEROS", r"ticket for hive@localhost: .*expired.*Run kinit")


@pytest.mark.usefixtures("ticket")
def test_a_service_that_the_realm_does_not_know_is_named(kerberized: str, refused: Refused) -> None:
    url = f"metastore://{kerberized}?auth=KERBEROS&kerberos_service_name=hms"
    refused(url, r"hms@localhost: .*not found in Kerberos.*kerberos_service_name")


@pytest.mark.usefixtures("ticket")
def test_a_server_that_is_somebody_else_is_told(kerberized: str, realm: Realm, refused: Refused) -> None:
    realm.keytab("hms2/localhost")
    url = f"metastore://{kerberized}?auth=KERBEROS&kerberos_service_name=hms2"
    refused(url, "refuses this process.*Check auth, .*the Kerberos ticket")


@pytest.mark.usefixtures("ticket")
def test_a_server_that_wants_a_ticket_and_no_tls_says_so(kerberized: str, refused: Refused) -> None:
    """The metastore of Hive 2.3 has no TLS with Kerberos, whatever its settings are."""
    refused(f"metastore://{kerberized}?answer_s=5", "auth and ssl are as it expects", StoreUnavailable)
    refused(
        f"metastore://{kerberized}?answer_s=5&auth=KERBEROS&ssl=true",
        "auth and ssl are as it expects",
        StoreUnavailable,
    )


@pytest.mark.usefixtures("ticket")
@pytest.mark.parametrize("protection", ["integrity", "privacy"])
def test_what_is_signed_or_encrypted_is_read(protection: str, realm: Realm, tmp_path: Path) -> None:
    with _in_realm(realm, tmp_path, protection) as server:
        _works(f"localhost:{server.port}?auth=KERBEROS")
        with connect(f"metastore://localhost:{server.port}?auth=KERBEROS&answer_s=120") as manager:
            many = [f"dw.flights/name=n{number:0700}" for number in range(120)]  # more than a buffer of SASL's holds
            lease = manager.acquire(owner="me", writes=many)
            assert len(manager.show()) == len(many)
            assert manager.release(lease)


@pytest.fixture(scope="module")
def tls(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = {
        "hive.metastore.use.SSL": "true",
        "hive.metastore.keystore.path": str(authority.keystore("localhost", password="hush-key")),
        "hive.metastore.keystore.password": "hush-key",
    }
    with Metastore(tmp_path_factory.mktemp("tls"), transactional=True, config=config) as server:
        yield f"localhost:{server.port}"


def test_tls_works_with_the_authority(tls: str, authority: Authority) -> None:
    _works(f"{tls}?ssl=true&ca={authority.ca}")


def test_tls_is_refused_in_one_clear_line(
    tls: str, authority: Authority, stranger: Authority, refused: Refused
) -> None:
    not_trusted = "not trusted here: .*CERTIFICATE_VERIFY_FAILED.*"
    refused(f"metastore://{tls}?ssl=true&ca={stranger.ca}", f"{not_trusted}Set ca to")
    refused(f"metastore://{tls}?ssl=true", f"{not_trusted}Set ca to")
    by_address = tls.replace("localhost", "127.0.0.1")
    refused(
        f"metastore://{by_address}?ssl=true&ca={authority.ca}",
        f"{not_trusted}IP address mismatch.*that the certificate was issued to",
    )
    refused(f"metastore://{tls}?ssl=true&ca=/nowhere.pem", r"ca.*/nowhere\.pem.*PEM")
    refused(f"metastore://{tls}?ssl=true&ca={__file__}", r"ca.*test_metastore\.py.*PEM")
    refused(f"metastore://{tls}?answer_s=5", "auth and ssl are as it expects", StoreUnavailable)
