"""The bytes of a transaction, compared with kazoo's."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import NodeExistsError, RolledBackError, RuntimeInconsistency
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl

from airflow_hivelock.locks.backends.zookeeper.client import Check, Commit, Create, Delete, Op, SetData
from airflow_hivelock.locks.backends.zookeeper.wire import Transaction, acl_packet

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


def test_its_answer_is_read_as_kazoo_reads_it() -> None:
    def result(kind: Any, body: bytes = b"") -> bytes:
        return bytes(serialization.MultiHeader(kind.type, False, -1).serialize()) + body

    path = serialization.write_string("/hive/dw/f\u00fcnf")
    stat = serialization.stat_struct.pack(*STAT)
    end = bytes(serialization.MultiHeader(-1, True, -1).serialize())
    done = [
        result(serialization.Create, path),
        result(serialization.SetData, stat),
        result(serialization.CheckVersion),
        result(serialization.Delete),
    ]
    answer = b"header" + b"".join(done) + end
    assert Transaction.deserialize(answer, 6) == serialization.Transaction.deserialize(answer, 6)
    assert Transaction.deserialize(answer, 6) == ["/hive/dw/f\u00fcnf", STAT, True, True]


def test_a_refusal_says_which_operation_failed() -> None:
    def failed(code: int) -> bytes:
        return bytes(serialization.multiheader_struct.pack(-1, False, code) + serialization.int_struct.pack(code))

    end = serialization.multiheader_struct.pack(-1, True, -1)
    answer = failed(0) + failed(NodeExistsError.code) + failed(RuntimeInconsistency.code) + end
    kinds = [RolledBackError, NodeExistsError, RuntimeInconsistency]
    assert [type(error) for error in Transaction.deserialize(answer, 0)] == kinds
    assert [type(error) for error in serialization.Transaction.deserialize(answer, 0)] == kinds
