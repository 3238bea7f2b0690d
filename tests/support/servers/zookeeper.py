"""ZooKeeper: one server, or an ensemble."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tests.support.servers.jvm import java
from tests.support.servers.server import START_S, Server, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.support.servers.certificates import Authority

NAMESPACE = "hive_zookeeper_namespace"
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@dataclass(frozen=True)
class Seat:
    """A member's place in an ensemble: its number, and every member's ``server.N`` line."""

    number: int
    members: Mapping[str, str]


class ZooKeeperServer(Server):
    """A ZooKeeper server on 127.0.0.1, with its data below ``workdir``.

    ``fsync``: whether a write is on disk before it is answered. Without it a SIGKILL loses nothing that
    was answered, the death of the machine may. ``config`` adds to ``zoo.cfg``, ``properties`` to the JVM's.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        fsync: bool = False,
        heap_mb: int = 256,
        config: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        seat: Seat | None = None,
    ) -> None:
        super().__init__(workdir / "zookeeper")
        self.port = free_port()
        self.heap_mb = heap_mb
        self._data = self.home / "data"
        self._seat = seat
        self._properties = properties
        self._config = {
            "dataDir": str(self._data),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": "500",
            "minSessionTimeout": "1000",
            "maxSessionTimeout": "120000",
            "maxClientCnxns": "0",
            "snapCount": "1000000",
            "forceSync": "yes" if fsync else "no",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **({"initLimit": "20", "syncLimit": "10", **seat.members} if seat else {}),
            **(config or {}),
        }

    @property
    def hosts(self) -> str:
        """``host:port``, as kazoo takes it."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL of Hive's locks in it."""
        return f"zookeeper://{self.hosts}/{NAMESPACE}"

    def mode(self) -> str | None:
        """``standalone``, ``leader`` or ``follower``; None while it does not serve."""
        try:
            answer = self.four_letters("srvr")
        except OSError:
            return None
        modes = [line.removeprefix("Mode: ") for line in answer.splitlines() if line.startswith("Mode: ")]
        return modes[0] if modes else None

    def four_letters(self, word: str) -> str:
        """The answer to one of ZooKeeper's four letter words; OSError when there is none."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(word.encode())
            with connection.makefile("rb") as answer:
                return answer.read().decode()

    def ephemerals(self) -> dict[str, str]:
        """The session of each ephemeral node, by path. In an ensemble, only the leader returns them."""
        session, found = "", {}
        for line in self.four_letters("dump").splitlines():
            if line.startswith("0x"):
                session = line
            elif line.startswith("\t/"):
                found[line.strip()] = session
        return found

    def ready(self) -> bool:
        return self.mode() is not None

    def command(self) -> list[str]:
        self._data.mkdir(exist_ok=True)
        if self._seat:
            (self._data / "myid").write_text(str(self._seat.number))
        path = self.home / "zoo.cfg"
        path.write_text("".join(f"{key}={value}\n" for key, value in self._config.items()))
        return java("servers.Tether", MAIN, str(path), heap_mb=self.heap_mb, properties=self._properties)


class SecuredZooKeeper(ZooKeeperServer):
    """A server that requires logins: at ``hosts`` it takes SASL and digest, at ``secure`` TLS with certificates.

    :param logins: the users of SASL, and their passwords.
    """

    def __init__(self, workdir: Path, *, authority: Authority, logins: Mapping[str, str]) -> None:
        self._tls_port, jaas = free_port(), workdir / "jaas.conf"
        users = " ".join(f'user_{name}="{password}"' for name, password in logins.items())
        jaas.write_text(f"Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required {users}; }};\n")
        jaas.chmod(0o600)
        config = {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": str(self._tls_port),
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": str(authority.issue("localhost")),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(authority.ca),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "enforce.auth.enabled": "true",
            "enforce.auth.schemes": "digest,sasl,x509",
        }
        super().__init__(workdir, config=config, properties={"java.security.auth.login.config": str(jaas)})

    @property
    def secure(self) -> str:
        """``host:port``, by the name that it has a certificate for."""
        return f"localhost:{self._tls_port}"


class Ensemble:
    """ZooKeeper servers that elect a leader; ``members`` are stopped and started one by one at will."""

    def __init__(self, workdir: Path) -> None:
        lines = {f"server.{n}": f"127.0.0.1:{free_port()}:{free_port()}" for n in (1, 2, 3)}
        self.members: Sequence[ZooKeeperServer] = [
            ZooKeeperServer(workdir / str(n), heap_mb=128, seat=Seat(n, lines)) for n in (1, 2, 3)
        ]

    @property
    def hosts(self) -> str:
        """Every member's ``host:port``, comma separated."""
        return ",".join(member.hosts for member in self.members)

    @property
    def url(self) -> str:
        """The URL of Hive's locks in it."""
        return f"zookeeper://{self.hosts}/{NAMESPACE}"

    def leader(self) -> ZooKeeperServer | None:
        """The member that leads now."""
        return next((member for member in self.members if member.mode() == "leader"), None)

    def start(self, timeout_s: float = START_S) -> None:
        """Start every member and wait until all of them serve."""
        deadline = time.monotonic() + timeout_s
        with ExitStack() as undo:
            undo.callback(self.stop)
            for member in self.members:
                member.launch()
            for member in self.members:
                member.wait_ready(deadline - time.monotonic())
            undo.pop_all()

    def stop(self) -> None:
        """Stop every member."""
        for member in self.members:
            member.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
