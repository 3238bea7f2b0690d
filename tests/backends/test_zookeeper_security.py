"""Logins at ZooKeeper, rights on nodes, and the errors without them: real servers, each with the right and a wrong
credential.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from kazoo.security import make_acl, make_digest_acl

from airflow_hivelock.locks import (
    AccessDenied,
    InvalidRequest,
    LockManager,
    LockTimeout,
    RequestTooLarge,
    StoreUnavailable,
    connect,
)
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.support.servers import SecuredZooKeeper
from tests.support.servers.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

DAY = "dw.flights/dt=2013-01-01"
PASSWORD = "hush/hush@42"
WORLD, READ, ALL = ("world", "anyone"), 1, 31


def _url(server: str, number: int, login: str = "", **options: str) -> str:
    at = f"{login.partition(':')[0]}:{quote(login.partition(':')[2], safe='')}@" if login else ""
    rest = "".join(f"&{name}={quote(value, safe='')}" for name, value in options.items())
    return f"zookeeper://{at}{server}/hive?chroot=/secured-{number}&timeout_s=20{rest}"


@pytest.fixture
def number(request: pytest.FixtureRequest) -> int:
    """Of namespaces of this test's own."""
    return abs(hash(request.node.name)) % 10**9


def _acls(raw: KazooClient, path: str) -> dict[str, dict[tuple[str, str], int]]:
    """The ACLs of a node and of everything below it."""
    found = {path: {(acl.id.scheme, acl.id.id): acl.perms for acl in raw.get_acls(path)[0]}}
    for name in raw.get_children(path):
        found |= _acls(raw, f"{path}/{name}")
    return found


def test_with_a_login_our_nodes_are_the_creators_and_hives_are_everybodys(
    zookeeper: ZooKeeperServer, raw: KazooClient, number: int
) -> None:
    with connect(_url(zookeeper.hosts, number, f"airflow:{PASSWORD}")) as manager:
        lease = manager.start_work(manager.acquire(owner="me", writes=[DAY]), "job", "process 1")
        ours = _acls(raw, f"/secured-{number}/airflow_hivelock")
        assert len(ours) > 6
        for path, acl in ours.items():
            assert acl.pop(WORLD) == READ, path
            assert [perms for (scheme, _), perms in acl.items() if scheme == "digest"] == [ALL], path
        for path, acl in _acls(raw, f"/secured-{number}/hive").items():
            assert acl == {WORLD: ALL}, f"Hive, whoever it is, must be able to lock and unlock at {path}"
        with connect(_url(zookeeper.hosts, number)) as looker:
            assert [holder.lease_id for holder in looker.show(DAY)] == [lease.id]
            looker.check_token(lease.id, "job", lease.works[0].token)  # a job's last look needs no password
            with pytest.raises(
                AccessDenied, match=r"a client without credentials .* at /secured-\d+/airflow_hivelock/"
            ):
                looker.force_release(lease.id, reason="why", user="me")
            with pytest.raises(AccessDenied):
                looker.acquire(owner="stranger", writes=[DAY])
        manager.verify(lease)
        assert manager.release(lease)
        assert manager.show() == []


def test_a_wrong_password_is_told_at_once(zookeeper: ZooKeeperServer, number: int) -> None:
    with connect(_url(zookeeper.hosts, number, f"airflow:{PASSWORD}")):
        begun = time.monotonic()
        with pytest.raises(
            AccessDenied, match=r"does not allow user 'airflow' \(DIGEST\).*Check login and password"
        ) as told:
            connect(_url(zookeeper.hosts, number, "airflow:wrong-one"))
        assert time.monotonic() - begun < 60
    assert "\n" not in str(told.value)
    assert "wrong-one" not in str(told.value)


def test_what_was_open_before_is_said_to_be(
    zookeeper: ZooKeeperServer, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(_url(zookeeper.hosts, number)), connect(_url(zookeeper.hosts, number, f"airflow:{PASSWORD}")):
        assert "was created without an ACL" in caplog.text


def test_others_are_named_in_acl(zookeeper: ZooKeeperServer, number: int) -> None:
    friend = make_digest_acl("ops", "their-own", all=True).id.id
    acl = f"creator,digest:{friend}"
    with connect(_url(zookeeper.hosts, number, f"airflow:{PASSWORD}", acl=acl)) as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
        with connect(_url(zookeeper.hosts, number, "ops:their-own", acl=acl)) as ops:
            with pytest.raises(LockTimeout):
                ops.acquire(owner="theirs", writes=[DAY])
            assert ops.force_release(lease.id, reason="why", user="ops")


def test_hives_nodes_are_hives_where_it_is_named(zookeeper: ZooKeeperServer, raw: KazooClient, number: int) -> None:
    hive = make_digest_acl("hive", "hives-own", all=True).id.id
    with connect(_url(zookeeper.hosts, number, f"airflow:{PASSWORD}", hive_acl=f"digest:{hive}")) as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
        raw.add_auth("digest", "hive:hives-own")
        acls = _acls(raw, f"/secured-{number}/hive")
        assert len(acls) == 7
        for path, acl in acls.items():
            assert acl[WORLD] == READ, f"SHOW LOCKS reads {path}"
            assert acl["digest", hive] == ALL, f"Hive locks at {path}"
            assert len(acl) == 3
        table = f"/secured-{number}/hive/dw/flights"
        node = raw.create(f"{table}/LOCK-SHARED-", b"a:1:IMPLICIT:select:c", sequence=True)
        raw.delete(node)
        assert manager.release(lease)


def test_who_may_write_below_the_databases_alone_can_lock_there(
    zookeeper: ZooKeeperServer, raw: KazooClient, number: int
) -> None:
    """The grant in one transaction creates a node next to them and deletes it again. The grant step by step does not
    need it.
    """
    with connect(_url(zookeeper.hosts, number)) as manager:
        assert manager.release(manager.acquire(owner="first", writes=[DAY]))
        raw.set_acls(f"/secured-{number}/hive", [make_acl(*WORLD, read=True)])
        assert manager.release(manager.acquire(owner="second", writes=[DAY]))


def test_a_request_with_long_acls_is_as_large_as_one_transaction_carries(
    zookeeper: ZooKeeperServer, number: int
) -> None:
    """Larger ones become EXCLUSIVE on the table; a packet too large would cost the connection."""
    hive = ",".join("digest:" + make_digest_acl(f"{'n' * 100}{n}", "x", all=True).id.id for n in range(8))
    with connect(_url(zookeeper.hosts, number, f"airflow:{PASSWORD}", hive_acl=hive)) as manager:
        for count in (350, 450):
            lease = manager.acquire(owner=f"rerun-{count}", writes=[f"dw.t{count}/n={n}" for n in range(count)])
            assert manager.release(lease)
        with pytest.raises(RequestTooLarge):
            manager.acquire(owner="greedy", writes=[f"dw.t{n}" for n in range(5_000)])


@pytest.mark.parametrize(
    "path",
    [
        *("airflow_hivelock/requests/0000000000000000", "airflow_hivelock/queue/dw.odd/0000000000000000-1-0-X"),
        *("airflow_hivelock/queue/odd", "airflow_hivelock/audit/0000000077", "airflow_hivelock/groups/odd"),
        *("hive/secret", "hive/other/t/LOCK-SHARED-0000000001"),
    ],
)
def test_a_node_that_only_its_creator_may_read_hides_no_other(
    path: str, zookeeper: ZooKeeperServer, raw: KazooClient, number: int
) -> None:
    """Any client can make such a node. It stopped the keeper, which then renewed and freed no lease."""
    with connect(_url(zookeeper.hosts, number)) as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
        odd = f"/secured-{number}/{path}"
        raw.ensure_path(odd.rpartition("/")[0])
        raw.create(odd, acl=[make_digest_acl("odd", "odd", all=True)])
        assert list(manager.leases()) == [lease]
        assert manager.requests() == ([lease], [])
        assert [tenure.owner for tenure in manager.history()] == ["me"]
        assert {holder.owner for holder in manager.show()} == {"me"}
        assert [*manager.audit(), *manager.groups()] == []
        manager.sweep()
        manager.release(lease)


def test_kazoo_logs_no_password(zookeeper: ZooKeeperServer, number: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0, "kazoo.client")
    caplog.set_level(0)
    with connect(_url(zookeeper.hosts, number, f"airflow:{PASSWORD}")):
        assert "scheme='digest'" in caplog.text
        assert PASSWORD not in caplog.text


def test_a_scheme_that_the_server_does_not_have_is_told(zookeeper: ZooKeeperServer, number: int) -> None:
    with pytest.raises(AccessDenied, match=r"refuses the ACL .*acl"):
        connect(_url(zookeeper.hosts, number, acl="sasl:hive"))


@pytest.mark.parametrize(
    ("login", "options", "said"),
    [
        ("", {"auth": "SASL"}, "auth=SASL .* takes a login and a password"),
        ("ann:pw", {"auth": "KERBEROS"}, "auth=KERBEROS .* takes no login"),
        ("ann:pw", {"auth": "LDAP"}, "Use one of NONE, DIGEST, SASL, KERBEROS"),
        ("", {"acl": "creator"}, "acl=creator .* needs a login"),
        ("ann:pw", {"acl": "sasl"}, "lists creator and ids"),
        ("ann:pw", {"acl": "digest:ops:in-clear"}, "takes a digest as"),
        ("", {"ca": "/ca.pem"}, "Add ssl=true"),
        ("", {"ssl": "yes"}, "Use true or false"),
        ("", {"ssl": "true", "key": "/nowhere.pem"}, r"Give that too \(cert\)"),
        ("", {"ssl": "true", "verify": "off"}, "Use one of full, ca, none"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_connected(
    login: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said) as told:
        connect(_url("127.0.0.1:1", 0, login, **options))
    assert "in-clear" not in str(told.value)


@pytest.mark.parametrize("options", [{"ca": "/nowhere.pem"}, {"cert": "/nowhere.pem"}, {"ca": __file__}])
def test_a_file_that_cannot_be_used_is_told(options: dict[str, str]) -> None:
    with pytest.raises(AccessDenied, match=f"{next(iter(options))}.* cannot be used .*Give PEM files"):
        connect(_url("127.0.0.1:1", 0, ssl="true", **options))


# SASL and TLS, which a server has to be made for.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses that take SASL and digest, and TLS with certificates."""
    home, logins = tmp_path_factory.mktemp("secured"), {"airflow": PASSWORD, "hive": "hives-own"}
    with SecuredZooKeeper(home, authority=authority, logins=logins) as server:
        yield server.hosts, server.secure


def _works(manager: LockManager) -> None:
    with manager:
        lease = manager.acquire(owner="me", writes=["dw.flights/n=1..100"])
        assert len(manager.show()) == 102, "a hundred at once are read together, which asks the server for its version"
        manager.renew(lease)
        assert manager.release(lease)


@pytest.mark.parametrize("auth", ["SASL", "DIGEST-MD5"])
def test_sasl_lets_in_whom_it_knows(secured: tuple[str, str], number: int, raw: KazooClient, auth: str) -> None:
    manager = connect(_url(secured[0], number, f"airflow:{PASSWORD}", auth=auth))
    backend = manager.backend
    assert isinstance(backend, ZooKeeperBackend)
    assert isinstance(backend.store.client, KazooSession)
    acl = {(acl.id.scheme, acl.id.id) for acl in backend.store.client._zk.get_acls(backend.store.layout.root)[0]}
    assert acl == {WORLD, ("sasl", "airflow")}
    _works(manager)


@pytest.mark.parametrize("login", ["airflow:wrong-one", "nobody:wrong-one"])
def test_sasl_keeps_out_whom_it_does_not_know(login: str, secured: tuple[str, str], number: int) -> None:
    with pytest.raises(AccessDenied, match=r"refuses user '\w+' \(SASL\).*\. Check that auth, and login") as told:
        connect(_url(secured[0], number, login, auth="SASL"))
    assert "\n" not in str(told.value)
    assert "wrong-one" not in str(told.value)


def test_a_server_that_wants_to_know_everybody_says_so(secured: tuple[str, str], number: int) -> None:
    with pytest.raises(AccessDenied, match=r"refuses a client without credentials.*\. Check that auth"):
        connect(_url(secured[0], number))


def test_tls_works_with_the_authority_and_a_certificate(
    secured: tuple[str, str], authority: Authority, number: int
) -> None:
    cert = authority.issue("airflow", password="hush-key")
    tls = {"ssl": "true", "ca": str(authority.ca), "cert": str(cert), "key_password": "hush-key"}
    manager = connect(_url(secured[1], number, acl="creator", **tls))
    backend = manager.backend
    assert isinstance(backend, ZooKeeperBackend)
    assert isinstance(backend.store.client, KazooSession)
    assert backend.store.client.guarded(backend.store.layout.root)
    assert backend.store.client._knows_multi_read(), "the four letter word goes by TLS, too"
    _works(manager)
    _works(connect(_url(secured[1], number + 1, f"airflow:{PASSWORD}", auth="SASL", **tls)))


def test_tls_is_refused_in_one_clear_line(
    secured: tuple[str, str], authority: Authority, number: int, tmp_path: Path
) -> None:
    ca, cert = str(authority.ca), str(authority.issue("airflow"))
    stranger = str(Authority(tmp_path).issue("airflow"))
    by_address = secured[1].replace("localhost", "127.0.0.1")
    cases = [
        (secured[1], {"cert": cert}, r"not trusted here .*CERTIFICATE_VERIFY_FAILED.*Set ca"),
        (by_address, {"ca": ca, "cert": cert}, r"IP address mismatch.*that the certificate was issued to"),
        (secured[1], {"ca": ca}, "whether it needs a certificate"),
        (secured[1], {"ca": ca, "cert": stranger}, "do not agree on TLS"),
        (secured[0], {"ca": ca, "cert": cert}, "Check that this port takes TLS"),
    ]
    for server, options, said in cases:
        with pytest.raises(AccessDenied, match=said) as told:
            connect(_url(server, number, ssl="true", **options))
        assert "\n" not in str(told.value), options
    with pytest.raises(StoreUnavailable, match="only takes TLS"):
        connect(_url(secured[1], number).replace("timeout_s=20", "timeout_s=2"))
    _works(connect(_url(by_address, number, ssl="true", verify="ca", ca=ca, cert=cert)))


def test_a_session_that_is_let_in_no_more_is_let_in_again_later(secured: tuple[str, str], number: int) -> None:
    """As when a ticket has expired: kazoo gives up for good at the first refusal."""
    with connect(_url(secured[0], number, f"airflow:{PASSWORD}", auth="SASL")) as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
        backend = manager.backend
        assert isinstance(backend, ZooKeeperBackend)
        session = backend.store.client
        assert isinstance(session, KazooSession)
        right, session._security = session._security, session._security.of("airflow:wrong-one", auth="SASL")
        session._zk._connection.sasl_options["password"] = "wrong-one"
        session._zk._connection._socket.shutdown(2)
        told: StoreUnavailable | None = None
        deadline = time.monotonic() + 60
        while "refuses user 'airflow'" not in str(told) and time.monotonic() < deadline:
            try:
                manager.verify(lease)
            except StoreUnavailable as error:
                told = error
            time.sleep(0.05)
        assert "refuses user 'airflow'" in str(told)
        assert not isinstance(told, AccessDenied), "what is held is held: an outage, to be waited out"
        session._security = right
        manager.verify(lease)
        manager.renew(lease)
        assert manager.release(lease)
