"""HiveServer2 in a Kerberos realm, and with a directory of users behind TLS: credentials right and wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import StoreUnavailable, connect
from airflow_hivelock.locks.backends.hiveserver2 import HiveServer2Backend
from tests.support.servers import HiveServer2
from tests.support.servers.directory import Directory
from tests.support.servers.realm import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers import ZooKeeperServer
    from tests.support.servers.certificates import Authority
    from tests.support.servers.realm import Realm
    from tests.system.security.conftest import Refused

pytestmark = pytest.mark.security


def _works(address: str, zookeeper: ZooKeeperServer) -> None:
    with connect(zookeeper.url) as locks, connect(f"hiveserver2://{address}") as manager:
        assert isinstance(manager.backend, HiveServer2Backend)
        manager.backend._ask("CREATE TABLE flights (a int)")
        lease = locks.acquire(owner="me", writes=["default.flights"])
        assert [str(holder.object) for holder in manager.show("default.flights")] == ["default.flights"]
        assert locks.release(lease)
        assert manager.show() == []


@pytest.fixture(scope="module")
def kerberized(realm: Realm, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = {
        "hadoop.security.authentication": "kerberos",
        "hive.server2.authentication.kerberos.principal": f"hive/localhost@{NAME}",
        "hive.server2.authentication.kerberos.keytab": str(realm.keytab("hive/localhost")),
        "yarn.resourcemanager.principal": f"hive/localhost@{NAME}",  # Hadoop wants a name, even to read a local file
    }
    home, properties = tmp_path_factory.mktemp("kerberized"), realm.properties
    with HiveServer2(home, zookeeper=zookeeper, auth="KERBEROS", config=config, properties=properties) as server:
        yield f"localhost:{server.port}"


@pytest.mark.usefixtures("ticket")
def test_a_ticket_lets_in(kerberized: str, zookeeper: ZooKeeperServer) -> None:
    _works(f"{kerberized}?auth=KERBEROS", zookeeper)


@pytest.mark.usefixtures("no_ticket")
def test_no_ticket_is_told_at_once(kerberized: str, refused: Refused) -> None:
    refused(f"hiveserver2://{kerberized}?auth=KERBEROS", r"no Kerberos ticket for hive@localhost: No Kerb.*Run kinit")


@pytest.mark.usefixtures("old_ticket")
def test_an_expired_ticket_is_told_at_once(kerberized: str, refused: Refused) -> None:
    refused(f"hiveserver2://{kerberized}?auth=KERBEROS", r"ticket for hive@localhost: .*expired.*Run kinit")


@pytest.mark.usefixtures("ticket")
def test_a_server_that_is_not_whom_the_ticket_is_for_is_told(kerberized: str, realm: Realm, refused: Refused) -> None:
    url = f"hiveserver2://{kerberized}?auth=KERBEROS&kerberos_service_name"
    refused(f"{url}=hs2", r"hs2@localhost: .*not found in Kerberos.*kerberos_service_name")
    realm.keytab("other/localhost")
    refused(f"{url}=other", "refuses this process.*Check auth, .*the Kerberos ticket")


def test_a_server_that_wants_a_ticket_says_so(kerberized: str, refused: Refused) -> None:
    refused(f"hiveserver2://{kerberized}", "refuses this process.*PLAIN.*Check auth")
    refused(f"hiveserver2://ann:hush-hush@{kerberized}?auth=LDAP", "refuses this process.*PLAIN.*Check auth")
    refused(f"hiveserver2://{kerberized}?auth=NOSASL&answer_s=10", "auth and ssl are as it expects", StoreUnavailable)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    with Directory(tmp_path_factory.mktemp("directory"), user="ann", password="hush-hush") as server:
        yield server


@pytest.fixture(scope="module")
def ldap(
    directory: Directory, authority: Authority, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    config = {
        "hive.server2.authentication.ldap.url": directory.url,
        "hive.server2.authentication.ldap.userDNPattern": directory.pattern,
        "hive.server2.use.SSL": "true",
        "hive.server2.keystore.path": str(authority.keystore("localhost", password="hush-key")),
        "hive.server2.keystore.password": "hush-key",
    }
    with HiveServer2(tmp_path_factory.mktemp("ldap"), zookeeper=zookeeper, auth="LDAP", config=config) as server:
        yield f"localhost:{server.port}"


def test_a_password_and_the_full_check_of_the_server_let_in(
    ldap: str, authority: Authority, zookeeper: ZooKeeperServer
) -> None:
    _works(f"ann:hush-hush@{ldap}?ssl=true&ca={authority.ca}", zookeeper)


@pytest.mark.parametrize("login", ["ann:wrong-one", "nobody:hush-hush", "ann:"])
def test_who_is_not_in_the_directory_is_told(login: str, ldap: str, authority: Authority, refused: Refused) -> None:
    url = f"hiveserver2://{login}@{ldap}?auth=LDAP&ssl=true&ca={authority.ca}"
    refused(url, "refuses this process.*Error validating.*Check auth, and the login and password")


def test_who_shows_no_password_is_told(ldap: str, authority: Authority, refused: Refused) -> None:
    refused(f"hiveserver2://ann@{ldap}?ssl=true&ca={authority.ca}", "refuses this process.*Error validating")


def test_tls_is_refused_in_one_clear_line(
    ldap: str, authority: Authority, stranger: Authority, refused: Refused, tmp_path: Path
) -> None:
    not_trusted = "not trusted here: .*CERTIFICATE_VERIFY_FAILED.*"
    url = f"hiveserver2://ann:hush-hush@{ldap}?auth=LDAP&answer_s=10"
    refused(f"{url}&ssl=true&ca={stranger.ca}", f"{not_trusted}Set ca to")
    refused(f"{url}&ssl=true&ca={authority.ca}".replace("localhost", "127.0.0.1"), f"{not_trusted}IP address mismatch")
    refused(f"{url}&ssl=true&ca={tmp_path}/none.pem", r"ca.*none\.pem.*PEM")
    refused(url, "auth and ssl are as it expects", StoreUnavailable)
