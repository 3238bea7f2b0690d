"""The stamp of the whole store, in a node of its own. It refuses processes that are too old, in each grant.

Every transaction that asks for locks or gets them checks this node's version, which is the stamp's format. Once a later
version has raised the stamp, the check of an earlier version fails. That process reads the stamp again, and continues
only if its own format is high enough. The check writes nothing, so requests do not conflict there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import formats, validate
from airflow_hivelock.locks.backends.zookeeper.client import Check, Commit, Create, Get, Refused, SetData, Sync
from airflow_hivelock.locks.errors import StoreCorrupted, StoreUnavailable
from airflow_hivelock.locks.pauses import tries

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Client, Node, Op

MAX_TRIES = 10


class StoreFormat:
    """The stamp of the store, as one session has read it last.

    :param path: of its node.
    :param mine: the stamp of this version.
    """

    def __init__(self, client: Client, path: str, mine: formats.Stamp = formats.WRITES) -> None:
        self._client, self.path, self._mine = client, path, mine
        self._version: int | None = None

    def check(self) -> Check:
        """The operation that fails if the stamp has changed since it was read.

        :raises UpgradeNeeded: see :meth:`read`.
        """
        if self._version is None:
            self.read()
        assert self._version is not None
        return Check(self.path, self._version)

    def read(self) -> None:
        """Read the stamp; if it is lower than this version's, raise it.

        :raises UpgradeNeeded: the store is for readers of a later format.
        """
        for _ in tries(MAX_TRIES):
            node = self._client.submit(Sync(), Get(self.path))[1]
            found, raised_by = _parse(self.path, node)
            if found and found.min_reader > self._mine.format:
                raise formats.refusal(self.path, found.format, found.min_reader, raised_by)
            if found and node and found.format >= self._mine.format:
                self._version = node.stat.version
                return
            made = self._client.submit(Commit(tuple(self._raises(node, found))))[0]
            if isinstance(made, Refused) and made.reason == Refused.NO_NODE and node is None:
                raise StoreUnavailable(f"{self.path.rpartition('/')[0]} is gone from ZooKeeper. Connect again")
        raise StoreUnavailable(f"{self.path} changed {MAX_TRIES} times while it was read. Try again")

    def _raises(self, node: Node | None, found: formats.Stamp | None) -> list[Op]:
        """The operations that write this version's stamp.

        There are as many writes as make the node's version the format. So a node that was deleted and made again has no
        version under which an earlier version knows it.
        """
        lowest = max(self._mine.min_reader, found.min_reader if found else 0)
        stamp = formats.Stamp(self._mine.format, lowest, found.unknown if found else {})
        data = formats.dump({**stamp.fields(), "raised_by": formats.release()}).encode()
        version = node.stat.version if node else 0
        start: list[Op] = [] if node else [Create(self.path)]
        return [*start, *(SetData(self.path, data, at) for at in range(version, max(version + 1, stamp.format)))]


def _parse(path: str, node: Node | None) -> tuple[formats.Stamp | None, str]:
    """The stamp in a node, and the version that raised it."""
    if node is None:
        return None, ""
    try:
        data = validate.load(node.data)
        found = validate.number(data.pop("format"), "format")
        lowest = validate.number(data.pop("min_reader", found), "min_reader")
        raised_by = validate.one_line(data.pop("raised_by", ""), "raised_by")
        return formats.Stamp(found, lowest, data), raised_by
    except (KeyError, TypeError, ValueError) as error:
        raise StoreCorrupted(
            f"{path} is not a stamp of airflow-hivelock ({error}). Stop the client that writes there, and delete that node"
        ) from error
