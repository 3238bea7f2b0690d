"""URLs with passwords: what is shown of them, and the errors of URLs that cannot be read."""

from __future__ import annotations

import ssl

import pytest

from airflow_hivelock.locks import InvalidRequest, connect
from airflow_hivelock.locks.errors import AccessDenied
from airflow_hivelock.locks.url import check, fingerprint, secrets, shown, tls


@pytest.mark.parametrize(
    ("url", "seen", "hidden"),
    [
        ("zookeeper://zk1:2181,zk2/hive?root=%2Fx", "zookeeper://zk1:2181,zk2/hive?root=%2Fx", []),
        ("zookeeper://ann:hu%2Fsh@zk1,zk2/hive", "zookeeper://ann@zk1,zk2/hive", ["hu%2Fsh", "hu/sh"]),
        ("zookeeper://zk/hive?key=k&key_password=hush", "zookeeper://zk/hive?key=k&key_password=***", ["hush"]),
        (
            "postgresql://ann:hush@db/airflow?sslmode=require&sslpassword=h+s&password=x",
            "postgresql://ann@db/airflow?sslmode=require&sslpassword=***&password=***",
            ["hush", "h+s", "h s", "x"],
        ),
        ("postgresql://ann@db/a?scram_client_key=k", "postgresql://ann@db/a?scram_client_key=***", ["k"]),
        ("sqlite:////var/a@b/leases.db", "sqlite:////var/a@b/leases.db", []),
        ("memory://", "memory://", []),
    ],
)
def test_what_is_shown_of_a_url_holds_no_password(url: str, seen: str, hidden: list[str]) -> None:
    check(url)
    assert shown(url) == seen
    assert secrets(url) == hidden


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://ann:hu/sh@zk:2181/hive",
        "zookeeper://ann:hu#sh@zk:2181/hive",
        "zookeeper://ann:hu?sh@zk:2181/hive",
        "metastore://ann:hush℀@hms",
        "hiveserver2://ann:hush@[::1",
        "zookeeper://zk:hush/hive",
        "zookeeper://ann:12/hush@zk:2181/hive",
        "zookeeper://ann:12?hush@zk:2181/hive",
        "zookeeper://ann:12?hush=hush@zk:2181/hive",
        "zookeeper://ann:12#hush@zk:2181/hive",
        "zookeeper://ann:x@12?hush@zk:2181/hive",
        "zookeeper://ann:x@12/?hush#hush@zk:2181/hive",
        "postgresql://ann:12?hush@db:5432/locks",
        "zookeeper://zk/hive?ssl=true&key_password=hu#sh",
        "zookeeper://zk/hive?ssl=true&key_password=hush#",
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(InvalidRequest, match="In a password, write %2F") as told:
        connect(url)
    assert "hu" not in str(told.value)


@pytest.mark.parametrize("cut", ["/", "?", "#", "?a=", "/?a=b&"])
@pytest.mark.parametrize("login", ["ann:12", "ann:x@12", "ann"])
def test_a_url_whose_password_ends_nowhere_is_not_shown(login: str, cut: str) -> None:
    assert "hush" not in shown(f"zookeeper://{login}{cut}hush@zk:2181/hive")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("zookeeper://a:hush@zk/hive", "zookeeper://a:hush@zk/hive", True),
        ("zookeeper://a:hush@zk/hive", "zookeeper://a:hash@zk/hive", False),
        ("postgresql://zk/hive?password=hush", "postgresql://zk/hive?password=hash", False),
        ("zookeeper://zk/hive", "zookeeper://zk/other", False),
    ],
)
def test_urls_are_told_apart_without_their_passwords(one: str, other: str, same: bool) -> None:
    assert (fingerprint(one) == fingerprint(other)) is same
    assert "hush" not in fingerprint(one)


@pytest.mark.parametrize("host", ["z" * 64, "zk..example", "zk:2181,zk2..example"])
def test_a_host_that_nobody_can_look_up_is_refused_at_once(host: str) -> None:
    with pytest.raises(InvalidRequest, match="needs hosts"):
        connect(f"zookeeper://{host}/hive")


@pytest.mark.parametrize(
    ("verify", "checks_name", "mode"),
    [("full", True, ssl.CERT_REQUIRED), ("ca", False, ssl.CERT_REQUIRED), ("none", False, ssl.CERT_NONE)],
)
def test_a_server_is_checked_as_far_as_it_is_asked_for(verify: str, checks_name: bool, mode: ssl.VerifyMode) -> None:
    context = tls(None, verify=verify)
    assert (context.check_hostname, context.verify_mode) == (checks_name, mode)
    assert context.get_ca_certs(), "the system's authorities"


@pytest.mark.parametrize(("files", "said"), [(("/nowhere.pem",), "ca"), ((None, "/nowhere.pem"), "cert, key")])
def test_a_file_for_tls_that_is_not_there_is_named_by_its_option(files: tuple[str | None, ...], said: str) -> None:
    with pytest.raises(AccessDenied, match=f"^{said}.* cannot be used .*/nowhere.pem: .*Give PEM files"):
        tls(*files)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("zookeeper:///hive", "needs hosts"),
        ("zookeeper://127.0.0.1:1/../x", "is not a ZooKeeper path"),
        ("zookeeper://127.0.0.1:1/hive?root=/hive/locks", "below Hive's namespace"),
        ("zookeeper://127.0.0.1:1/hive?timeout_s=soon", "not a number"),
        ("zookeeper://127.0.0.1:1/hive?colour=blue", "colour"),
        ("oracle://127.0.0.1/locks", "oracle is not a lock store"),
        ("nonsense", "a URL without a scheme"),
        ("mysql+mysqldb://db/locks", r"mysql\+mysqldb.*Write mysql://, which uses pymysql"),
        ("mariadb+mariadbconnector://db/locks", r"mariadb\+.*Write mariadb://"),
        ("mysql://db", "names no database"),
        ("mysql://db/locks?init_command=DROP", "unknown option init_command"),
        (
            "mysql://db/locks?local_infile=1",
            r"unknown option local_infile\. Use one of expiry, .*, ssl_ca, .*, unix_socket$",
        ),
        ("mysql://db/locks?ssl_mode=maybe", "ssl_mode='maybe'"),
        ("mysql://db/locks?ssl_mode=disabled&ssl_ca=ca.pem", "Leave one of them out"),
        ("metastore://", "names no metastore"),
        ("metastore://ann:hush@host", "metastore host takes no login"),
        ("metastore://host:port", "A port is a number"),
        ("metastore://host?auth=LDAP", "NONE, KERBEROS"),
        ("metastore://host?timeout_s=soon", "timeout_s=.soon. is not a number of seconds, above 0"),
        ("metastore://host?ssl=1", "true or false"),
        ("metastore://host?root=/x", "unknown option root"),
        ("metastore://host?answer_s=5&answer_s=6", "answer_s is given twice. Keep one of them"),
        ("mysql://db/locks?ssl_ca=a.pem&ssl_ca=b.pem", "ssl_ca is given twice"),
        ("memory://?expiry=frees", "unknown option expiry. This lock store has no options"),
        ("sqlite:////none/x?max_lease=5", r"unknown option max_lease\. Use one of expiry, max_lease_s, .*, timeout_s$"),
        ("sqlite:////none/x?schema=locks", r"unknown option schema\. Use one of"),
        ("postgresql://db/locks?ssl=true", r"unknown option ssl\. Use one of .*expiry, .*, sslmode, "),
        # libpq reports these as it reports an outage
        (
            "postgresql://ann:hush@127.0.0.1:1/locks?sslmode=maybe",
            r'invalid sslmode value: "maybe"\. Correct the options',
        ),
        (
            "postgresql://127.0.0.1:1/locks?ssl_min_protocol_version=1",
            r'invalid "ssl_min_protocol_version" value: "1"\. Correct',
        ),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_before_anything_is_connected(url: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as refused:
        connect(url)
    assert "hush" not in str(refused.value)
