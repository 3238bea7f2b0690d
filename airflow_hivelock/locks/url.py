"""URLs of lock stores: checks, options, passwords, TLS, and the libraries that a store needs.

A password can be in the login or in an option.
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
    from collections.abc import Collection, Iterable
    from urllib.parse import SplitResult

DAY_S = 86_400.0
YEAR_S = 366 * DAY_S

_SECRET = re.compile(r"pass|secret|token|scram", re.IGNORECASE)
"""The names of secret options: ``key_password`` of this package; ``sslpassword`` and ``scram_client_key`` of libpq."""

_SALT = os.urandom(16)

_HOSTS = re.compile(r"(\[[^\]]*\]|[^:\[\],]*)(:\d*)?(,(\[[^\]]*\]|[^:\[\],]*)(:\d*)?)*")


def check(url: str, of: str = "the lock store") -> None:
    """Refuse a URL that cannot be split into its parts.

    :param of: what the URL is for, for the error message.
    :raises InvalidRequest: the URL is malformed. The message does not contain it, because the end of its password is
        unknown.
    """
    try:
        if not url.isprintable():  # urlsplit would silently drop some of these characters
            raise ValueError("characters that a URL cannot have")
        parts = urlsplit(url)
        fragment = parts.netloc and "#" in url  # no store has one: the # is in an option, and would cut it off
        whole = not fragment and not _cut_short(parts) and _HOSTS.fullmatch(parts.netloc.rpartition("@")[2])
    except ValueError:  # urlsplit's own message repeats the URL
        whole = None
    if not whole:
        raise InvalidRequest(
            f"the URL of {of} cannot be read. A port is a number. In a password, write %2F for /, %3F for ?, %23 for #, "
            "%40 for @ and %25 for %. After the hosts, also write %40 for @"
        )


def _cut_short(parts: SplitResult) -> bool:
    """Whether a ``/``, ``?`` or ``#`` may be inside the password, as in ``zookeeper://ann:12?word@zk/hive``.

    The rest of the login is then in a later part of the URL.
    """
    return bool(parts.netloc) and any("@" in part for part in (parts.path, parts.query, parts.fragment))


def shown(url: str) -> str:
    """Return *url* without its passwords. If the end of a password is unknown, return only its scheme."""
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
    """The passwords in *url*, each as it is written there, and decoded."""
    parts = urlsplit(url)
    pairs = [option.partition("=")[::2] for option in parts.query.split("&")]
    written = [parts.password or "", *(value for name, value in pairs if _SECRET.search(name))]
    return [form for text in written if text for form in dict.fromkeys((text, unquote(text), unquote_plus(text)))]


def fingerprint(url: str) -> str:
    """A text without passwords that identifies *url* in this process."""
    if not secrets(url):
        return url
    return f"{shown(url)} {hashlib.blake2b(url.encode(), key=_SALT, digest_size=8).hexdigest()}"


def check_options(url: str, names: Iterable[str], known: Collection[str]) -> None:
    """Check the *names* of the options of *url*.

    :raises InvalidRequest: one of them is not *known*.
    """
    if unknown := sorted({*names}.difference(known)):
        has = f"Use one of {', '.join(sorted(known))}" if known else "This lock store has no options: remove it"
        raise InvalidRequest(f"{shown(url)!r}: unknown option {', '.join(unknown)}. {has}")


def seconds(name: str, value: str | float, *, most_s: float = YEAR_S, or_none: bool = False) -> float:
    """Return *value* as a number of seconds.

    :param or_none: 0 is allowed.
    :raises InvalidRequest: *value* is not a number in the allowed range.
    """
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not (0 <= found <= most_s) or (found == 0 and not or_none):
        above = "from 0" if or_none else "above 0"
        raise InvalidRequest(f"{name}={value!r} is not a number of seconds, {above} up to {most_s:,.0f}")
    return found


def truth(name: str, text: str, where: str = "") -> bool:
    """Return the boolean of the text ``true`` or ``false``, in upper or lower case.

    :param where: the place of the setting, for the error message, as in `` in hive-site.xml:3``.
    :raises InvalidRequest: *text* is neither. Hive would silently use its default.
    """
    if text.lower() not in ("true", "false"):
        raise InvalidRequest(f"{name}={text!r:.80}{where} is invalid. Use true or false")
    return text.lower() == "true"


def tls(
    ca: str | None,
    cert: str | None = None,
    key: str | None = None,
    password: str | None = None,
    *,
    verify: str = "full",
    options: tuple[str, str] = ("ca", "cert, key, key_password"),
) -> ssl.SSLContext:
    """Return the TLS context for a connection to a lock store. Each call reads the PEM files again.

    :param ca: the trusted authorities. The default is the system's.
    :param cert: the certificate of this process. *password* decrypts its *key*.
    :param verify: ``full`` checks the certificate and the name of the server; ``ca`` only the certificate; ``none``
        neither.
    :param options: the URL's names for *ca* and for the other files, for the error message.
    :raises AccessDenied: a file cannot be used.
    """
    files, paths = options[0], [ca]
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            files, paths = options[1], [cert, key]
            context.load_cert_chain(cert, key, lambda: password or "")  # without this, OpenSSL would ask the terminal
    except (OSError, ValueError) as error:
        named = " and ".join(path for path in paths if path)  # OpenSSL's error has no path
        raise AccessDenied(f"{files} cannot be used ({named}: {error}). Give PEM files on this host") from error
    context.check_hostname = verify == "full"
    context.verify_mode = ssl.CERT_NONE if verify == "none" else ssl.CERT_REQUIRED
    return context


def need(why: str, *modules: str, extra: str) -> None:
    """Check that client libraries are installed.

    :param why: what they are needed for, as in ``to ask the metastore``.
    :param extra: the extra of this package that installs them.
    :raises HiveLockError: one of them is missing.
    """
    try:
        for module in modules:
            import_module(module)
    except ImportError as error:
        raise HiveLockError(f"{why}, pip install 'airflow-hivelock[{extra}]' ({error})") from error
