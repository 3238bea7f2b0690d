"""URLs of lock stores: how they may be shown, for passwords stand in the login and among the options; what their options
say; and the libraries that a store needs."""

from __future__ import annotations

import hashlib
import os
import re
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus, urlsplit

from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest

if TYPE_CHECKING:
    from urllib.parse import SplitResult

DAY_S = 86_400.0
YEAR_S = 366 * DAY_S

_SECRET = re.compile(r"pass|secret|token|scram", re.IGNORECASE)
"""What an option is called that nobody may read: ``key_password`` here; ``sslpassword``, ``scram_client_key`` in libpq."""

_SALT = os.urandom(16)

_HOSTS = re.compile(r"(\[[^\]]*\]|[^:\[\],]*)(:\d*)?(,(\[[^\]]*\]|[^:\[\],]*)(:\d*)?)*")


def check(url: str, of: str = "the lock store") -> None:
    """:raises InvalidRequest: a URL that cannot be taken apart; it is not repeated, for who knows where its password ends."""
    try:
        if not url.isprintable():  # urlsplit would leave some of it out
            raise ValueError("characters that no URL has")
        parts = urlsplit(url)
        whole = not _cut_short(parts) and _HOSTS.fullmatch(parts.netloc.rpartition("@")[2])
    except ValueError:  # which repeats it
        whole = None
    if not whole:
        raise InvalidRequest(
            f"the URL of {of} cannot be read: a port is a number, and in a password / is written %2F, ? %3F, # %23, "
            "@ %40 and % %25. An @ behind the hosts is written %40, too"
        )


def _cut_short(parts: SplitResult) -> bool:
    """Whether the login may go on behind a /, a ? or a # of the password: ``zookeeper://ann:12?word@zk/hive``."""
    return bool(parts.netloc) and any("@" in part for part in (parts.path, parts.query, parts.fragment))


def shown(url: str) -> str:
    """*url* without its passwords; only its scheme, if it cannot be told where they end."""
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
    """The passwords in *url*, each as it stands there and as it is meant."""
    parts = urlsplit(url)
    pairs = [option.partition("=")[::2] for option in parts.query.split("&")]
    written = [parts.password or "", *(value for name, value in pairs if _SECRET.search(name))]
    return [form for text in written if text for form in dict.fromkeys((text, unquote(text), unquote_plus(text)))]


def fingerprint(url: str) -> str:
    """Tells *url* from every other, within this process, and holds none of its passwords."""
    if not secrets(url):
        return url
    return f"{shown(url)} {hashlib.blake2b(url.encode(), key=_SALT, digest_size=8).hexdigest()}"


def seconds(name: str, value: str | float, *, most_s: float = YEAR_S, or_none: bool = False) -> float:
    """A time in seconds, above 0 unless there may be *or_none*.

    :raises InvalidRequest: it is no such number.
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
    """True or false.

    :raises InvalidRequest: neither.
    """
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name}={text!r}: use true or false")
    return text == "true"


def need(why: str, *modules: str, extra: str) -> None:
    """:raises HiveLockError: one of the client libraries is not installed; *extra* brings it."""
    try:
        for module in modules:
            import_module(module)
    except ImportError as error:
        raise HiveLockError(f"{why}, pip install 'airflow-hivelock[{extra}]' ({error})") from error
