"""The private parts of kazoo that this package uses behave as expected: each failure names what has changed.

docs/dependencies.md has the list. kazoo's upper bound in pyproject.toml moves after these tests have passed.
"""

from __future__ import annotations

import inspect
import selectors
import socket
import threading
from importlib.metadata import version
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionClosedError, NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KeeperState, ZnodeStat

from airflow_hivelock.locks.backends.zookeeper.security import Security

NOWHERE = "127.0.0.1:1"
CHANGED = f"kazoo {version('kazoo')} has changed {{}}: read airflow_hivelock/locks/backends/zookeeper/{{}} before the bound moves"

SIGNATURES = [
    (KazooClient, "_call", ["self", "request", "async_object"], "session.py (_send)"),
    (KazooClient, "_reset_session", ["self"], "session.py (_give_up)"),
    (ConnectionHandler, "_connect", ["self", "host", "hostip", "port"], "session.py (_let_in)"),
]


@pytest.mark.parametrize(("owner", "name", "takes", "used"), SIGNATURES, ids=lambda value: str(value)[:30])
def test_each_private_function_is_there_and_takes_the_same(owner: type, name: str, takes: list[str], used: str) -> None:
    found = getattr(owner, name, None)
    assert found is not None, CHANGED.format(f"{owner.__name__}.{name}, which is gone", used)
    assert list(inspect.signature(found).parameters) == takes, CHANGED.format(
        f"what {owner.__name__}.{name} takes", used
    )


def test_kazoo_connects_by_the_function_that_the_session_replaces() -> None:
    client, asked, ended = KazooClient(NOWHERE), [], threading.Event()

    def refused(*address: Any) -> None:
        asked.append(address)
        ended.set()
        raise AuthFailedError

    connection = getattr(client, "_connection", None)
    assert connection is not None, CHANGED.format("KazooClient._connection, which is gone", "session.py (_start)")
    connection._connect = refused
    client.start_async()
    try:
        assert ended.wait(20), CHANGED.format(
            "how a client connects: not by _connection._connect", "session.py (_start)"
        )
        connection._connection_routine.join(20)
        assert client.client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED), CHANGED.format(
            "what follows an AuthFailedError of _connect", "session.py (_let_in)"
        )
        assert asked == [("127.0.0.1", "127.0.0.1", 1)]
    finally:
        client.stop()
        client.close()


def test_a_client_that_is_reset_begins_a_new_session() -> None:
    client = KazooClient(NOWHERE, client_id=(5, b"x" * 16))
    client._reset_session()
    assert (client._session_id, client._session_passwd) == (None, bytes(16)), CHANGED.format(
        "what _reset_session resets", "session.py (_give_up)"
    )


def test_a_closed_client_refuses_a_request_by_its_result() -> None:
    client = KazooClient(NOWHERE)
    result = client.handler.async_result()
    client._call(serialization.Sync("/"), result)
    assert isinstance(result.exception, ConnectionClosedError), CHANGED.format(
        "how _call refuses a request", "session.py (_send)"
    )


@pytest.mark.parametrize(
    "handler", [Security().options()["handler"], SequentialThreadingHandler()], ids=["ours", "kazoo"]
)
def test_a_handler_waits_for_sockets(handler: Any) -> None:
    one, other = socket.socketpair()
    with one, other:
        assert handler.select([one], [], [], 0) == ([], [], [])
        assert handler.select([], [one], [], 0) == ([], [one], [])
        other.send(b"x")
        assert handler.select([other, one], [], [], 20) == ([one], [], [])
    with pytest.raises(TypeError, match="Invalid file descriptor"):
        handler.select([one], [], [], 0)


def test_the_sessions_handler_makes_no_epoll_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(selectors, "DefaultSelector")
    one, other = socket.socketpair()
    with one, other:
        assert Security().options()["handler"].select([], [one], [], 0) == ([], [one], []), CHANGED.format(
            "selector_select", "security.py (_Handler)"
        )


def test_a_request_is_an_object_with_a_type_that_writes_and_reads_itself() -> None:
    request = serialization.GetData("/a", None)
    assert (request.type, request.serialize()) == (4, b"\0\0\0\2/a\0"), CHANGED.format("requests", "wire.py")
    assert inspect.signature(request.deserialize).parameters.keys() == {"bytes", "offset"}, CHANGED.format(
        "how an answer is read", "wire.py"
    )


def test_the_parts_of_packets_are_the_same() -> None:
    kinds = {name: getattr(serialization, name).type for name in ("Create", "SetData", "GetData", "GetChildren")}
    assert kinds == {"Create": 1, "SetData": 5, "GetData": 4, "GetChildren": 8}, CHANGED.format("types", "wire.py")
    assert serialization.write_string("ä") == b"\0\0\0\2\xc3\xa4", CHANGED.format("write_string", "wire.py")
    assert serialization.read_string(b"\0\0\0\1a", 0) == ("a", 5), CHANGED.format("read_string", "wire.py")
    assert serialization.read_buffer(b"\0\0\0\1a", 0) == (b"a", 5), CHANGED.format("read_buffer", "wire.py")
    stat = ZnodeStat._make(serialization.stat_struct.unpack(bytes(serialization.stat_struct.size)))
    assert (serialization.stat_struct.size, stat.czxid) == (68, 0), CHANGED.format("stat_struct", "wire.py")
    assert EXCEPTIONS[-101] is NoNodeError, CHANGED.format("the codes of errors", "wire.py")
