"""A Kerberos realm: Debian's MIT KDC (``krb5-kdc``, ``krb5-user``) on a port of its own, with nothing outside its directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.servers.server import Server, accepts, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "HIVELOCK.TEST"
COMMAND_S = 60


class Realm(Server):
    """``keytab`` makes principals; ``ticket`` logs one in. ``configuration`` is what clients and JVMs need."""

    def __init__(self, workdir: Path) -> None:
        super().__init__(workdir / "realm")
        self.port = free_port()
        self.configuration = self.home / "krb5.conf"
        self._kdc = self.home / "kdc.conf"

    def ready(self) -> bool:
        return accepts(self.port)

    def environment(self) -> Mapping[str, str]:
        return {"KRB5_CONFIG": str(self.configuration), "KRB5_KDC_PROFILE": str(self._kdc)}

    def command(self) -> list[str]:
        self.configuration.write_text(
            f"[libdefaults]\n default_realm = {NAME}\n dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n"
            f" rdns = false\n udp_preference_limit = 1\n[realms]\n {NAME} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
            f"[domain_realm]\n localhost = {NAME}\n"
        )
        self._kdc.write_text(
            f'[kdcdefaults]\n kdc_listen = ""\n kdc_tcp_listen = 127.0.0.1:{self.port}\n[realms]\n {NAME} = {{\n'
            f"  database_name = {self.home}/principal\n  key_stash_file = {self.home}/stash\n"
            f"  acl_file = {self.home}/acl\n }}\n[logging]\n kdc = FILE:{self.home}/kdc.log\n"
        )
        if not (self.home / "stash").exists():
            self._run("kdb5_util", "create", "-s", "-r", NAME, "-P", "master")
        tether = str(Path(__file__).with_name("tether.py"))
        return [sys.executable, tether, "", _tool("krb5kdc"), "-n", "-r", NAME, "-P", str(self.home / "pid")]

    def keytab(self, principal: str) -> Path:
        """The keytab of a principal, ``zookeeper/localhost`` say; who is not there yet is made."""
        path = self.home / f"{principal.replace('/', '.')}.keytab"
        if not path.exists():
            self._run("kadmin.local", "-r", NAME, "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-r", NAME, "-q", f"ktadd -k {path} {principal}")
        return path

    def ticket(self, principal: str, *, life_s: int = 3600) -> Path:
        """A credential cache with a new ticket for *principal*."""
        cache = self.home / f"{principal}.{life_s}.cache"
        self._run("kinit", "-l", f"{life_s}s", "-c", str(cache), "-k", "-t", str(self.keytab(principal)), principal)
        return cache

    def valid(self, cache: Path) -> bool:
        """Whether a ticket of *cache* has not expired."""
        return subprocess.run([_tool("klist"), "-s", "-c", str(cache)], check=False, timeout=COMMAND_S).returncode == 0

    @property
    def properties(self) -> dict[str, str]:
        """Of a JVM that belongs to the realm."""
        return {"java.security.krb5.conf": str(self.configuration)}

    def jaas(self, section: str, principal: str, keytab: Path) -> Path:
        """A JAAS file for a JVM that serves as *principal*."""
        path = self.home / f"{section}.jaas"
        path.write_text(
            f"{section} {{ com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'useTicketCache=false keyTab="{keytab}" principal="{principal}@{NAME}"; }};\n'
        )
        return path

    def _run(self, tool: str, *arguments: str) -> None:
        environment = {**os.environ, **self.environment()}
        command = [_tool(tool), *arguments]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=COMMAND_S)


def _tool(name: str) -> str:
    found = (Path(directory, name) for directory in ("/usr/sbin", "/usr/bin", "/usr/local/sbin"))
    return str(next((path for path in found if path.exists()), name))
