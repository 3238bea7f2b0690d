"""ZooKeeper, as far as locks notice: a leader's tree, followers that lag, sessions, watches, transactions.

Writes go through the leader one after another and get a zxid each. The follower of a session serves its reads. It has
applied a prefix of the writes, never shorter than the session has seen. The follower keeps the watches. A watch fires
once, when *its* follower applies the change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Children,
    Commit,
    Create,
    Delete,
    Exists,
    Get,
    Listing,
    Names,
    Node,
    Refused,
    Stat,
    Sync,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.backends.zookeeper.client import Op, Request

    Wake = Callable[[], None]
    Watches = dict[str, dict[tuple[int, Wake], None]]


class Znode(NamedTuple):
    """A node as of one write.

    :param session: the owner of an ephemeral node, else 0.
    :param children: a tuple, for a set's order would differ from one run to the next.
    """

    data: bytes
    stat: Stat
    session: int = 0
    children: tuple[str, ...] = ()


class Change(NamedTuple):
    """What one write did to one path; None is absence."""

    path: str
    before: Znode | None
    after: Znode | None


class Write(NamedTuple):
    """One entry of the leader's log; a refused transaction is one too, without changes."""

    zxid: int
    session: int
    changes: tuple[Change, ...]


@dataclass
class Follower:
    """A server that clients read from."""

    tree: dict[str, Znode]
    applied: int = 0
    data_watches: Watches = field(default_factory=dict)
    child_watches: Watches = field(default_factory=dict)

    def apply(self, write: Write) -> None:
        for change in write.changes:
            if change.after is None:
                del self.tree[change.path]
            else:
                self.tree[change.path] = change.after
        self.applied = write.zxid
        for change in write.changes:
            self._fire(change)

    def forget(self, session: int) -> list[Wake]:
        """Drop the session's watches, and say which they were."""
        found: dict[Wake, None] = {}
        for watches in (self.data_watches, self.child_watches):
            for path in list(watches):
                for key in [key for key in watches[path] if key[0] == session]:
                    del watches[path][key]
                    found[key[1]] = None
                if not watches[path]:
                    del watches[path]
        return list(found)

    def _fire(self, change: Change) -> None:
        path, before, after = change
        changed = before is None or after is None or before.stat.mzxid != after.stat.mzxid
        if changed and path in self.data_watches:
            for _, wake in self.data_watches.pop(path):
                wake()
        listed = before is not None and (
            after is None or before.children != after.children or before.stat.czxid != after.stat.czxid
        )
        if listed and path in self.child_watches:
            for _, wake in self.child_watches.pop(path):
                wake()


class _Failed(Exception):
    def __init__(self, op: Op, reason: str) -> None:
        super().__init__(reason)
        self.refusal = Refused(op, reason)


class ZooKeeper:
    """The ensemble.

    :param followers: how many of them; number 0 never lags.
    :param now_ms: the servers' clock.
    :param observe: called after every write at the leader, before any client can know of it.
    """

    def __init__(self, followers: int, now_ms: Callable[[], int], observe: Callable[[Write], None]) -> None:
        self.log: list[Write] = [Write(0, 0, ())]
        root = Znode(b"", Stat(0, 0, 0, 0, 0, False, 0))
        self.followers = [Follower({"": root}) for _ in range(followers)]
        self.tree = self.followers[0].tree
        self._now_ms = now_ms
        self._observe = observe
        self._sessions: dict[int, Follower] = {}
        self._last_session = 0

    @property
    def zxid(self) -> int:
        return self.followers[0].applied

    # Sessions

    def connect(self, follower: int) -> int:
        """A new session, through one of the followers."""
        self._last_session += 1
        self._sessions[self._last_session] = self.followers[follower]
        return self._last_session

    def lives(self, session: int) -> bool:
        return session in self._sessions

    def reconnect(self, session: int, follower: int, seen: int) -> list[Wake]:
        """Move a session to another follower; it catches up with what the session has seen. Watches do not move."""
        wakes = self._sessions[session].forget(session)
        self._sessions[session] = self.followers[follower]
        self.catch_up(self.followers[follower], seen)
        return wakes

    def expire(self, session: int) -> list[Wake]:
        """End a session: its ephemeral nodes go, and its watches fire at its client."""
        wakes = self._sessions.pop(session).forget(session)
        gone = [path for path, node in self.tree.items() if node.session == session]
        self._commit(session, tuple(Delete(path) for path in gone))
        return wakes

    def catch_up(self, follower: Follower, zxid: int) -> None:
        """Let *follower* apply the log up to *zxid*."""
        while follower.applied < zxid:
            follower.apply(self.log[follower.applied + 1])

    # Requests

    def serve(self, session: int, request: Request) -> Any:
        """Carry out one request; the reply is what :class:`~.client.Client` says it is."""
        follower = self._sessions[session]
        if isinstance(request, Sync):
            return self.catch_up(follower, self.zxid)
        if isinstance(request, Commit):
            reply = self._commit(session, request.ops)
            self.catch_up(follower, self.zxid)
            return reply
        path, wake = request.path.rstrip("/"), request.wake
        node = follower.tree.get(path)
        if wake is not None and (node is not None or isinstance(request, Exists)):
            watches = follower.child_watches if isinstance(request, Children) else follower.data_watches
            watches.setdefault(path, {})[session, wake] = None
        if node is None:
            return None
        if isinstance(request, Exists):
            return node.stat
        if isinstance(request, Get):
            return Node(node.data, node.stat)
        return Listing(node.children, 0 if isinstance(request, Names) else node.stat.czxid)

    def follower_of(self, session: int) -> Follower:
        """The server that the session is connected to."""
        return self._sessions[session]

    def seen(self, session: int) -> int:
        """The latest write that the session's follower has applied."""
        return self._sessions[session].applied

    def _commit(self, session: int, ops: tuple[Op, ...]) -> tuple[Any, ...] | Refused:
        touched: dict[str, Znode | None] = {}
        replies: tuple[Any, ...] | Refused
        now_ms = self._now_ms()
        zxid = self.zxid + 1
        try:
            replies = tuple([self._do(op, session, touched, now_ms, zxid) for op in ops])
        except _Failed as failure:
            replies, touched = failure.refusal, {}
        tree = self.tree
        changes = tuple(
            [Change(path, tree.get(path), after) for path, after in touched.items() if after or path in tree]
        )
        write = Write(zxid, session, changes)
        self.log.append(write)
        self.followers[0].apply(write)
        self._observe(write)
        return replies

    def _do(self, op: Op, session: int, touched: dict[str, Znode | None], now_ms: int, zxid: int) -> Any:
        path = op.path
        if isinstance(op, Create):
            return self._create(op, session, touched, now_ms, zxid)
        node = touched[path] if path in touched else self.tree.get(path)
        if node is None:
            raise _Failed(op, Refused.NO_NODE)
        if isinstance(op, Delete):
            if node.children:
                raise _Failed(op, Refused.NOT_EMPTY)
            touched[path] = None
            above, _, name = path.rpartition("/")
            parent = touched[above] if above in touched else self.tree[above]
            assert parent is not None
            left = tuple([child for child in parent.children if child != name])
            touched[above] = Znode(parent.data, parent.stat._replace(pzxid=zxid), parent.session, left)
            return True
        old = node.stat
        if op.version not in (-1, old.version):
            raise _Failed(op, Refused.BAD_VERSION)
        if isinstance(op, Check):
            return True
        stat = old._replace(mzxid=zxid, version=old.version + 1, mtime_ms=now_ms)
        touched[path] = Znode(op.data, stat, node.session, node.children)
        return stat

    def _create(self, op: Create, session: int, touched: dict[str, Znode | None], now_ms: int, zxid: int) -> str:
        above = op.path.rpartition("/")[0]
        parent = touched[above] if above in touched else self.tree.get(above)
        if parent is None:
            raise _Failed(op, Refused.NO_NODE)
        path = f"{op.path}{parent.stat.created:010}" if op.sequential else op.path
        if (touched[path] if path in touched else self.tree.get(path)) is not None:
            raise _Failed(op, Refused.NODE_EXISTS)
        touched[path] = Znode(op.data, Stat(zxid, zxid, 0, now_ms, now_ms, op.ephemeral, 0), session * op.ephemeral)
        name = path[len(above) + 1 :]
        stat = parent.stat._replace(created=parent.stat.created + 1, pzxid=zxid)
        touched[above] = Znode(parent.data, stat, parent.session, (*parent.children, name))
        return path
