"""A session with a real ZooKeeper, over kazoo: how it connects, logs in, sends requests and loses the connection."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionDropped,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import OPEN_ACL_UNSAFE

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.backends.zookeeper import wire
from airflow_hivelock.locks.backends.zookeeper.client import (
    Children,
    Commit,
    Create,
    Exists,
    Get,
    Refused,
    Request,
    Sync,
)
from airflow_hivelock.locks.backends.zookeeper.security import ANYBODY
from airflow_hivelock.locks.backends.zookeeper.wire import MultiRead, Transaction, acl_packet
from airflow_hivelock.locks.errors import AccessDenied, InvalidRequest, RequestTooLarge, StoreUnavailable
from airflow_hivelock.locks.hive import kerberos

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Op
    from airflow_hivelock.locks.backends.zookeeper.security import Security


log = logging.getLogger(__name__)

RECONNECT_S = 5.0
"""The longest pause before a lost server is tried again, in seconds. kazoo doubles its pause, up to an hour."""

GIVE_UP_AFTER = 3
"""A session without a connection for this many of its time-outs is given up for a new one."""

LARGE_BYTES = 50_000
"""From this size on a lost connection may be due to a server's ``jute.maxbuffer`` below its default."""

MOST_BYTES = 1_048_575 - 8
"""ZooKeeper's default ``jute.maxbuffer`` minus a request's header: a larger request makes it close the connection."""

_ENDED = (KeeperState.AUTH_FAILED, KeeperState.CLOSED)
"""In these states kazoo tries no longer."""


class KazooSession:
    """:class:`~.client.Client` over kazoo.

    :param hosts: ``host:port,host:port``.
    :param timeout_s: the session's time-out, and the longest that one call waits for a connection or a reply.
    :param root: nodes below it are this package's own; all others that it makes are for Hive as well.
    :raises AccessDenied: every server refuses this client.
    """

    def __init__(self, hosts: str, timeout_s: float = 10.0, security: Security = ANYBODY, root: str = "/") -> None:
        self._hosts = hosts
        self._timeout_s = timeout_s
        self._security = security
        self._root, self._below_root = root, f"{root}/"
        self._our_acl, self._hives_acl = acl_packet(security.ours), acl_packet(security.hives)
        self._starting = threading.Lock()
        self._closed = False
        self._latest = 0
        self._lost_at, self._losses, self._sessions = 0.0, 0, 0
        self._start()

    def _start(self) -> None:
        """Make a new client, connected and authenticated."""
        self._sessions += 1
        self._synced = 0
        self._multi_read_known: tuple[int, bool] | None = None
        self._fault, self._denied = "", False
        self._settled, self._untrusted = threading.Event(), 0
        try:
            zk = KazooClient(
                self._hosts,
                timeout=self._timeout_s,
                read_only=False,
                connection_retry={"max_tries": -1, "max_delay": RECONNECT_S},
                **self._security.options(),
            )
        except ValueError as error:
            raise InvalidRequest(
                f"{self._hosts!r}: {error}. Name ZooKeeper's servers, as in zk1:2181,zk2:2181"
            ) from error
        self._zk = zk
        self._zk._connection._connect = partial(self._let_in, self._zk._connection._connect)
        self._connected = self._zk.handler.event_object()
        self._zk.add_listener(partial(self._on_state, self._connected))
        try:
            self._security.ready(host for host, _ in self._zk.hosts)
            self._zk.start_async()
            if not self._settled.wait(self._timeout_s) or not self._zk.connected:
                raise KazooTimeoutError
            self._zk.sync_async("/").get(timeout=self._timeout_s)  # kazoo reports CONNECTED before the login
        except (KazooTimeoutError, KazooException, OSError) as error:
            denied = isinstance(error, AuthFailedError | SessionClosedRequireSaslError) or self._denied
            self._end()
            raise self._refused(denied) from error
        except AccessDenied:
            self._end()
            raise

    def _start_again(self) -> None:
        """Replace a session that a server has refused. Another server, or a newer Kerberos ticket, may help."""
        if not self._starting.acquire(timeout=self._timeout_s):
            raise self._not_sent()
        try:
            if self._zk.client_state in _ENDED and not self._closed:
                self._end()
                self._start()
        except AccessDenied as error:
            raise StoreUnavailable(str(error)) from error  # a later try may succeed, and leases stay held
        finally:
            self._starting.release()

    def _end(self) -> None:
        self._zk.stop()
        self._zk.close()

    def _let_in(self, connect: Callable[..., Any], *address: Any) -> Any:
        """kazoo's own connect step. Some errors of servers and SASL libraries would end kazoo's thread."""
        try:
            return connect(*address)
        except SessionExpiredError:
            raise
        except (ConnectionDropped, KazooTimeoutError) as error:
            self._fault = str(error.__context__ or error)  # kazoo's own text may end in "None"
            self._untrusted += "SSL" in self._fault
            if self._untrusted >= len(self._zk.hosts):
                self._settled.set()  # waiting cannot help
            raise
        except Exception as error:
            self._fault, self._denied = kerberos.reason_of(error.__cause__ or error), True
            raise AuthFailedError(self._fault) from error

    def _refused(self, denied: bool) -> StoreUnavailable:
        """The error for a session that could not be started, with the next step."""
        where, fault = f"ZooKeeper at {self._hosts}", self._fault
        why = f" ({fault})" if fault else ""
        if denied:
            return AccessDenied(
                f"{where} refuses {self._security}{why}. Check that auth, and login and password or the Kerberos ticket, are as its "
                "servers expect"
            )
        if "CERTIFICATE_VERIFY_FAILED" in fault:
            return AccessDenied(
                f"{where} has a certificate that is not trusted here{why}. Set ca to the certificate of its authority. Use the name "
                "in the URL that the certificate was issued to"
            )
        if "SSL" in fault:
            return AccessDenied(
                f"{where} and this client do not agree on TLS{why}. Check that this port takes TLS, and whether it needs a "
                "certificate (cert, key)"
            )
        return StoreUnavailable(
            f"{where} did not answer within {self._timeout_s:g} s{why}. Check that it runs, has a quorum and can be reached "
            "from here, and whether it only takes TLS"
        )

    def _not_sent(self) -> StoreUnavailable:
        why = f" ({self._fault})" if self._fault else ""
        return StoreUnavailable(
            f"ZooKeeper at {self._hosts} is not connected{why}, so the request was not sent. Check that it runs, has a quorum and "
            "can be reached from here"
        )

    @property
    def session(self) -> int:
        return self._sessions

    @property
    def connection(self) -> int:
        return self._losses

    @property
    def zxid(self) -> int:
        return int(self._zk.last_zxid)

    def close(self) -> None:
        self._closed = True
        with self._starting:  # a session that is being started is closed as well
            self._end()

    def guarded(self, path: str) -> bool:
        """Whether the node's ACL keeps others from writing."""
        try:
            acls, _ = self._zk.get_acls_async(path).get(timeout=self._timeout_s)
        except NoAuthError as error:
            raise self._forbidden(path) from error
        except (KazooTimeoutError, KazooException) as error:
            raise StoreUnavailable(
                f"ZooKeeper at {self._hosts}: {type(error).__name__} when asked for the ACL of {path}"
            ) from error
        return not set(acls) >= set(OPEN_ACL_UNSAFE)

    def submit(self, *requests: Request) -> list[Any]:
        if not requests:
            return []
        requests = tuple(self._written(request) if isinstance(request, Commit) else request for request in requests)
        if self._zk.client_state in _ENDED and not self._closed:
            self._start_again()
        # kazoo would keep a request until the connection is back, however late that is.
        zk, connected = self._zk, self._connected
        if not connected.wait(self._timeout_s):
            if time.monotonic() - self._lost_at > GIVE_UP_AFTER * self._timeout_s and not self._connected.is_set():
                self._give_up()
            raise self._not_sent()
        session = self.session
        # The server of a new session may lag behind that of the last one.
        asked = requests if session == self._synced else (Sync(), *requests)
        deadline = time.monotonic() + 2 * self._timeout_s
        pending = [(part, self._send(zk, *part)) for part in self._parts(asked)]
        replies = [reply for part, result in pending for reply in self._replies(part, result, deadline)]
        if session != self.session:
            raise StoreUnavailable(
                f"ZooKeeper at {self._hosts}: the session ended during a request, so its outcome is unknown"
            )
        if session != self._synced and self.zxid < self._latest:
            log.error(
                "ZooKeeper at %s went back from zxid %#x to %#x, so it has lost data, or was restored from a backup. Locks may "
                "be missing, ended locks may be back, and fencing tokens start again. Stop the DAGs that lock, let the jobs "
                "end, and start with empty namespaces",
                *(self._hosts, self._latest, self.zxid),
            )
            self._latest = 0
        self._synced, self._latest = session, max(self._latest, self.zxid)
        return replies[len(asked) - len(requests) :]

    def _parts(self, requests: Sequence[Request]) -> Iterable[tuple[Request, ...]]:
        """*requests*, in order; many reads are grouped, as many as one request carries."""
        parts = list(wire.parts(requests))
        if len(parts) == len(requests) or self._knows_multi_read():
            return parts
        return ((request,) for request in requests)

    def _knows_multi_read(self) -> bool:
        """Whether the server knows ``multiRead``. It is asked once per connection: the next server may be older."""
        connection = self._losses  # a late answer is about this connection
        known = self._multi_read_known
        if known is None or known[0] != connection:
            try:
                known = connection, wire.knows_multi_read(self._zk.command(b"srvr"))
            except (KazooException, OSError, AttributeError):  # AttributeError: the connection went meanwhile
                known = connection, False
            self._multi_read_known = known
        return known[1]

    def _give_up(self) -> None:
        """Begin a new session with the next connection: a server that has lost data refuses a session that has seen
        more of it."""
        self._sessions += 1
        self._zk._reset_session()  # before the zxid: the old session must not continue with a server that lags behind
        self._zk.last_zxid = 0

    def _on_state(self, connected: Any, state: str) -> None:
        if state == KazooState.CONNECTED:
            connected.set()
            self._settled.set()
        else:
            if connected.is_set():
                self._lost_at = time.monotonic()
                self._losses += 1
            if state == KazooState.LOST:
                self._sessions += 1
            connected.clear()

    def _send(self, zk: KazooClient, request: Request, *more: Request) -> Any:
        if more:
            result = zk.handler.async_result()
            zk._call(MultiRead((request, *more)), result)
            return result
        match request:
            case Get(path, wake):
                return zk.get_async(path, watch=wire.watcher(wake))
            case Exists(path, wake):
                return zk.exists_async(path, watch=wire.watcher(wake))
            case Children(path, wake):
                return zk.get_children_async(path, watch=wire.watcher(wake), include_data=True)
            case Sync():
                return zk.sync_async("/")
            case Transaction():
                result = zk.handler.async_result()
                zk._call(request, result)
                return result
        raise AssertionError(request)

    def _replies(self, requests: Sequence[Request], result: Any, deadline: float) -> list[Any]:
        if len(requests) == 1:
            return [self._reply(requests[0], result, deadline)]
        try:
            found = result.get(timeout=max(0.001, deadline - time.monotonic()))
        except (KazooTimeoutError, KazooException) as error:
            raise StoreUnavailable(f"ZooKeeper at {self._hosts}: {type(error).__name__} during a look") from error
        return [self._looked(request, reply) for request, reply in zip(requests, found, strict=True)]

    def _looked(self, request: Request, reply: Any) -> Any:
        if not isinstance(reply, Exception):
            return reply
        assert isinstance(request, Get | Children)
        if not isinstance(reply, NoAuthError):
            raise StoreUnavailable(
                f"ZooKeeper at {self._hosts}: {type(reply).__name__} during a look at {request.path}"
            ) from reply
        self._unreadable(request, reply)
        return None

    def _reply(self, request: Request, result: Any, deadline: float) -> Any:
        try:
            value = result.get(timeout=max(0.001, deadline - time.monotonic()))
        except NoNodeError:
            return None
        except NoAuthError as error:
            assert not isinstance(request, Commit | Sync)
            self._unreadable(request, error)
            return None
        except (KazooTimeoutError, KazooException) as error:
            # A look has no outcome to report: a transaction that was sent with it may have been applied.
            what = "a request, so its outcome is unknown" if isinstance(request, Commit) else "a look"
            why = "connection lost" if isinstance(error, ConnectionLoss) else type(error).__name__
            if isinstance(request, Transaction) and (size_bytes := len(request.packet)) > LARGE_BYTES:
                what += f". If that happens again: its jute.maxbuffer may be smaller than this request, {size_bytes:,} bytes"
            raise StoreUnavailable(f"ZooKeeper at {self._hosts}: {why} during {what}") from error
        match request:
            case Get():
                return wire.node(value)
            case Exists():
                return wire.stat(value) if value else None
            case Children():
                return wire.listing(value)
            case Commit(ops):
                return self._outcome(ops, value)
            case _:
                return None

    def _written(self, commit: Commit) -> Transaction:
        transaction = Transaction.of(commit, [self._acl(op.path) for op in commit.ops if isinstance(op, Create)])
        if (size := len(transaction.packet)) > MOST_BYTES:
            raise RequestTooLarge(
                f"{commit.ops[0].path}: one transaction has {size:,} bytes, more than ZooKeeper takes "
                f"({MOST_BYTES:,}). It was not sent, because it would end the connection of this process"
            )
        return transaction

    def _acl(self, path: str) -> bytes:
        return self._our_acl if path == self._root or path.startswith(self._below_root) else self._hives_acl

    def _outcome(self, ops: Sequence[Op], results: Sequence[Any]) -> tuple[Any, ...] | Refused:
        if not isinstance(results[0], Exception):  # all of them failed, or none
            return tuple(results)
        op, error, reason = wire.failure(ops, results)
        if reason:
            return Refused(op, reason)
        if isinstance(error, NoAuthError):
            raise self._forbidden(op.path) from error
        if isinstance(error, InvalidACLError):
            raise AccessDenied(
                f"ZooKeeper at {self._hosts} refuses the ACL for {op.path}. Either acl or hive_acl names a scheme that its servers "
                "do not have, or it contains creator and this client has no identity there. Correct the ACL"
            ) from error
        raise StoreUnavailable(f"ZooKeeper refused {op.path}: {type(error).__name__}. Nothing was changed") from error

    def _unreadable(self, request: Get | Exists | Children, error: NoAuthError) -> None:
        """Raise the error for a node that this client may not read. A listing goes on: any client can make such a node."""
        denied = self._forbidden(request.path)
        if isinstance(request, Exists) or not request.lenient:
            raise denied from error
        validate.complain(log, str(denied), 0)

    def _forbidden(self, path: str) -> AccessDenied:
        return AccessDenied(
            f"ZooKeeper at {self._hosts} does not allow {self._security} to do that at {path}. Nothing was changed. Check login "
            "and password, and the ACLs there and above (getAcl). Installations and hosts that share a store need one "
            "identity, or must name each other in acl"
        )
