"""URLs of lock stores: how to show one without its passwords, how to read its options, and the libraries that a store
needs.

Passwords can be in the login and among the options.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus, urlsplit

from airflow_hivelock.locks.errors import AccessDenied, HiveLockError, InvalidRequest

if TYPE_CHECKING:
    from urllib.parse import SplitResult

DAY_S = 86_400.0
YEAR_S = 366 * DAY_S

_SECRET = re.compile(r"pass|secret|token|scram", re.IGNORECASE)
"""Options that must not be shown: ``key_password`` here; ``sslpassword`` and ``scram_client_key`` of libpq."""

_SALT = os.urandom(16)

_HOSTS = re.compile(r"(\[[^\]]*\]|[^:\[\],]*)(:\d*)?(,(\[[^\]]*\]|[^:\[\],]*)(:\d*)?)*")


def check(url: str, of: str = "the lock store") -> None:
    """Refuse a URL that cannot be split into its parts.

    :raises InvalidRequest: the message does not repeat the URL, because the end of its password is unknown.
    """
    try:
        if not url.isprintable():  # urlsplit silently drops some of these characters
            raise ValueError("characters that a URL cannot have")
        parts = urlsplit(url)
        whole = not _cut_short(parts) and _HOSTS.fullmatch(parts.netloc.rpartition("@")[2])
    except ValueError:  # urlsplit's own message repeats the URL
        whole = None
    if not whole:
        raise InvalidRequest(
            f"the URL of {of} cannot be read. A port is a number. In a password, write %2F for /, %3F for ?, %23 for #, "
            "%40 for @ and %25 for %. After the hosts, also write %40 for @"
        )


def _cut_short(parts: SplitResult) -> bool:
    """Whether a /, ? or # may be part of the password, so that the login continues after it:
    ``zookeeper://ann:12?word@zk/hive``."""
    return bool(parts.netloc) and any("@" in part for part in (parts.path, parts.query, parts.fragment))


def shown(url: str) -> str:
    """*url* without its passwords; only its scheme if the end of a password is unknown."""
    parts = urlsplit(url)
    if _cut_short(parts):
        return f"{parts.scheme}://***"
    login, at, hosts = parts.netloc.rpartition("@")
    options = [
        f"{name}=***" if _SECRET.search(name) else option
        for option in parts.query.split("&")
        for name in [option.partition("=")[0]]
    ]
    head = url.partition("?")[0].replace(f"//{parts.netloc}", f"//{login.partition(':')[0]}{at}{hosts}", 1)
    return f"{head}?{'&'.join(options)}" if parts.query else head


def secrets(url: str) -> list[str]:
    """The passwords in *url*, each as it is written there and decoded."""
    parts = urlsplit(url)
    pairs = [option.partition("=")[::2] for option in parts.query.split("&")]
    written = [parts.password or "", *(value for name, value in pairs if _SECRET.search(name))]
    return [form for text in written if text for form in dict.fromkeys((text, unquote(text), unquote_plus(text)))]


def fingerprint(url: str) -> str:
    """A text that identifies *url* within this process, without its passwords."""
    if not secrets(url):
        return url
    return f"{shown(url)} {hashlib.blake2b(url.encode(), key=_SALT, digest_size=8).hexdigest()}"


def seconds(name: str, value: str | float, *, most_s: float = YEAR_S, or_none: bool = False) -> float:
    """Return a number of seconds, above 0 unless *or_none* allows 0.

    :raises InvalidRequest: *value* is no such number.
    """
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not (0 <= found <= most_s) or (found == 0 and not or_none):
        above = "from 0" if or_none else "above 0"
        raise InvalidRequest(f"{name}={value!r} is not a number of seconds, {above} up to {most_s:,.0f}")
    return found


def truth(name: str, text: str) -> bool:
    """Return True or False for the text ``true`` or ``false``.

    :raises InvalidRequest: *text* is neither of them.
    """
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name}={text!r} is invalid. Use true or false")
    return text == "true"


def tls(
    ca: str | None,
    cert: str | None = None,
    key: str | None = None,
    password: str | None = None,
    *,
    verify: str = "full",
    options: tuple[str, str] = ("ca", "cert, key, key_password"),
) -> ssl.SSLContext:
    """The TLS context for a connection to a lock store. Files are PEM files; each call reads them again.

    :param ca: the authorities that are trusted; default: the system's.
    :param cert: this process's own certificate. *password* decrypts its *key*.
    :param verify: ``full``; ``ca``, without the server's name; ``none``.
    :param options: what the URL calls *ca*, and the rest.
    :raises AccessDenied: a file that cannot be used.
    """
    files, paths = options[0], [ca]
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            files, paths = options[1], [cert, key]
            context.load_cert_chain(cert, key, lambda: password or "")  # or OpenSSL would ask the terminal
    except (OSError, ValueError) as error:
        named = " and ".join(path for path in paths if path)  # OpenSSL's error has no path
        raise AccessDenied(f"{files} cannot be used ({named}: {error}). Give PEM files on this host") from error
    context.check_hostname = verify == "full"
    context.verify_mode = ssl.CERT_NONE if verify == "none" else ssl.CERT_REQUIRED
    return context


def need(why: str, *modules: str, extra: str) -> None:
    """Check that client libraries are installed.

    :raises HiveLockError: one of them is missing; the extra *extra* installs it.
    """
    try:
        for module in modules:
            import_module(module)
    except ImportError as error:
        raise HiveLockError(f"{why}, pip install 'airflow-hivelock[{extra}]' ({error})") from error
