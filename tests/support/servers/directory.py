"""A directory of users: Debian's ``slapd`` on a port of its own, which LDAP's clients ask who may log in."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.servers.server import Server, accepts, free_port

BASE = "dc=hivelock,dc=test"


class Directory(Server):
    """It knows one user."""

    def __init__(self, workdir: Path, *, user: str, password: str) -> None:
        super().__init__(workdir / "directory")
        self.port = free_port()
        self._user, self._password = user, password

    @property
    def url(self) -> str:
        """As ``hive.server2.authentication.ldap.url`` takes it."""
        return f"ldap://127.0.0.1:{self.port}"

    @property
    def pattern(self) -> str:
        """As ``hive.server2.authentication.ldap.userDNPattern`` takes it."""
        return f"uid=%s,{BASE}"

    def ready(self) -> bool:
        return accepts(self.port)

    def command(self) -> list[str]:
        data, configuration = self.home / "data", self.home / "slapd.conf"
        data.mkdir(exist_ok=True)
        configuration.write_text(
            "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\n"
            f"modulepath /usr/lib/ldap\nmoduleload back_mdb\ndatabase mdb\ndirectory {data}\n"
            f'suffix "{BASE}"\nrootdn "{self.pattern % self._user}"\nrootpw {self._password}\n'
        )
        configuration.chmod(0o600)
        tether = str(Path(__file__).with_name("tether.py"))
        slapd = ["/usr/sbin/slapd", "-d", "0", "-f", str(configuration), "-h", self.url]
        return [sys.executable, tether, "", *slapd]
