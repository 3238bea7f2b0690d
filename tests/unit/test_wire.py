"""The bytes of a transaction, compared with kazoo's."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl

from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Children,
    Commit,
    Create,
    Delete,
    Get,
    Listing,
    Names,
    Node,
    Op,
    Request,
    SetData,
)
from airflow_hivelock.locks.backends.zookeeper.wire import MultiRead, Transaction, acl_packet, stat

PATHS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(lambda name: f"/{name}")
VERSIONS = st.integers(-1, 2**31 - 1)
OPS = st.one_of(
    st.builds(Create, PATHS, st.binary(), st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, st.binary(), VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
    st.builds(Delete, PATHS),
)
ACLS = [OPEN_ACL_UNSAFE, [*CREATOR_ALL_ACL, make_acl("sasl", "hive/ä@EXAMPLE.ORG", read=True)]]
STAT = ZnodeStat(*range(1, len(ZnodeStat._fields) + 1))
PACKED = serialization.stat_struct.pack(*STAT)
END = serialization.multiheader_struct.pack(-1, True, -1)


def _kazoos(op: Op, acl: list[ACL]) -> Any:
    match op:
        case Create(path, data, sequential, ephemeral):
            return serialization.Create(path, data, acl, ephemeral + 2 * sequential)
        case SetData(path, data, version):
            return serialization.SetData(path, data, version)
        case Check(path, version):
            return serialization.CheckVersion(path, version)
        case Delete(path):
            return serialization.Delete(path, -1)


@given(st.lists(OPS, max_size=20), st.sampled_from(ACLS))
def test_it_is_written_as_kazoo_writes_it(ops: list[Op], acl: list[ACL]) -> None:
    written = Transaction.of(Commit(tuple(ops)), repeat(acl_packet(acl))).serialize()
    assert written == serialization.Transaction([_kazoos(op, acl) for op in ops]).serialize()


def _result(kind: Any, body: bytes = b"") -> bytes:
    return bytes(serialization.MultiHeader(kind.type, False, -1).serialize()) + body


def _failed(code: int) -> bytes:
    return bytes(serialization.multiheader_struct.pack(-1, False, code) + serialization.int_struct.pack(code))


def test_its_answer_is_read_as_kazoo_reads_it() -> None:
    path = serialization.write_string("/hive/dw/f\u00fcnf")
    done = [
        _result(serialization.Create, path),
        _result(serialization.SetData, PACKED),
        _result(serialization.CheckVersion),
        _result(serialization.Delete),
    ]
    answer = b"header" + b"".join(done) + END
    kazoos = serialization.Transaction.deserialize(answer, 6)
    assert kazoos == ["/hive/dw/f\u00fcnf", STAT, True, True]
    assert Transaction.deserialize(answer, 6) == [kazoos[0], stat(kazoos[1]), True, True]


def test_a_refusal_says_which_operation_failed() -> None:
    answer = _failed(0) + _failed(NodeExistsError.code) + _failed(RuntimeInconsistency.code) + END
    kinds = [RolledBackError, NodeExistsError, RuntimeInconsistency]
    assert [type(error) for error in Transaction.deserialize(answer, 0)] == kinds
    assert [type(error) for error in serialization.Transaction.deserialize(answer, 0)] == kinds


def test_many_reads_are_written_like_kazoos_reads() -> None:
    reads: dict[Request, list[Any]] = {
        Get("/f\u00fcnf"): [serialization.GetData("/f\u00fcnf", None)],
        Names("/a"): [serialization.GetChildren("/a", None)],
        Children("/b"): [serialization.GetChildren("/b", None), serialization.GetData("/b", None)],
    }
    kazoos = [operation for each in reads.values() for operation in each]
    parts = [_result(operation, operation.serialize()) for operation in kazoos]
    assert MultiRead(tuple(reads)).serialize() == b"".join(parts) + END


def test_many_reads_have_a_reply_each() -> None:
    """The reply is None if there is no such node. Clients in Java also make nodes without data."""
    names = serialization.int_struct.pack(2) + serialization.write_string("x") + serialization.write_string("\u00fc")
    data, no_data = (
        _result(serialization.GetData, serialization.write_buffer(b"1") + PACKED),
        serialization.int_struct.pack(-1),
    )
    listed, absent, denied = (
        _result(serialization.GetChildren, names),
        _failed(NoNodeError.code),
        _failed(NoAuthError.code),
    )
    reads: dict[Request, tuple[bytes, object]] = {
        Get("/a"): (data, Node(b"1", stat(STAT))),
        Get("/b"): (_result(serialization.GetData, no_data + PACKED), Node(b"", stat(STAT))),
        Get("/c"): (absent, None),
        Names("/d"): (listed, Listing(("x", "\u00fc"), 0)),
        Names("/e"): (absent, None),
        Children("/f"): (listed + data, Listing(("x", "\u00fc"), STAT.czxid)),
        Children("/g"): (listed + absent, None),
        Children("/h"): (denied + denied, NoAuthError),
        Get("/i"): (data, Node(b"1", stat(STAT))),
    }
    answer = b"header" + b"".join(told for told, _ in reads.values()) + END
    replies = MultiRead(tuple(reads)).deserialize(answer, 6)
    found = [type(reply) if isinstance(reply, Exception) else reply for reply in replies]
    assert found == [reply for _, reply in reads.values()]
