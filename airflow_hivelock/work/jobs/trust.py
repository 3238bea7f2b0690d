"""Checks the names in a record of work before a cluster is asked about the work.

A record comes from the lock store, where other people can perhaps write. It names a job and a connection. It must never
send credentials to another server than the connection's. It must never make this process read a file or import a
module that neither Airflow nor this process names. SECURITY.md has the decision for each field.

A record may also use the names of an operator in this process, because the DAG's author chose them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_hivelock.locks.errors import CannotTell

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

CONN_ID = re.compile(r"(?!.*\.\.)[\w#!()\-.:/]{0,250}")
"""The form of a connection's id. A secrets backend uses it in a path, so it has no ``..``."""

REGION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""The form of a region. It is a part of the name of the host that gets credentials, so it has no dot and no slash."""

CONFIG_FILES, ACCOUNTS = "kube_config_files", "impersonated_accounts"
"""Options of ``[hivelock]`` with names that a record may use although neither its connection nor a task here does."""

_own: set[tuple[str, ...]] = set()


def learn(names: Iterable[tuple[str, ...]]) -> None:
    """Remember names that an operator in this process uses."""
    _own.update(names)


def is_own(*name: str) -> bool:
    """Whether an operator in this process uses the name."""
    return name in _own


def check_connection(conn_id: str, types: Collection[str]) -> dict[str, Any]:
    """Return the extra of the connection *conn_id* in a record; empty if the connection does not exist.

    Hooks of Kubernetes and AWS also work without a connection. They then use their own environment, which no record can
    change.

    :param types: the allowed types of the connection. With another type, credentials could go to the wrong server.
    :raises CannotTell: the connection has another type.
    """
    if not CONN_ID.fullmatch(conn_id):
        raise CannotTell(f"connection {conn_id[:80]!r} has an invalid name")
    try:
        connection = BaseHook.get_connection(conn_id) if conn_id else None
    except AirflowNotFoundException:
        connection = None
    if connection is None:
        return {}
    if connection.conn_type not in types and not is_own("connection", conn_id):
        raise CannotTell(
            f"connection {conn_id!r} is of type {connection.conn_type!r}, but a record may only name one of type "
            f"{' or '.join(sorted(types))}. If the connection is the right one, change its type"
        )
    extra: dict[str, Any] = connection.extra_dejson
    return extra


def check_config_file(path: str | None, extra: dict[str, Any]) -> None:
    """Check that *path* may be read.

    :param extra: the extra of the connection to Kubernetes.
    :raises CannotTell: *path* must not be read, because its contents can run programs.
    """
    allowed = [extra.get("kube_config_path"), extra.get("extra__kubernetes__kube_config_path"), *_option(CONFIG_FILES)]
    if path is not None and path not in allowed and not is_own("config_file", path):
        raise CannotTell(
            f"config_file {path[:200]!r} is not read, because only a record names it. Name it as the connection's kube "
            f"config path, or in [hivelock] {CONFIG_FILES}"
        )


def check_accounts(chain: Collection[str], extra: dict[str, Any]) -> None:
    """Check that these accounts may be used.

    :param chain: the service accounts to act as.
    :param extra: the extra of the connection to Google.
    :raises CannotTell: neither Airflow nor a task in this process names one of them.
    """
    named = extra.get("impersonation_chain") or extra.get("extra__google_cloud_platform__impersonation_chain") or []
    of_connection = [each.strip() for each in named.split(",")] if isinstance(named, str) else list(named)
    if not chain or list(chain) == of_connection or is_own("accounts", *chain):
        return
    if not set(chain) <= set(_option(ACCOUNTS)):
        raise CannotTell(
            f"{', '.join(chain)[:300]} is not impersonated, because only a record names it. Name it as the connection's "
            f"impersonation chain, or in [hivelock] {ACCOUNTS}"
        )


def provider_types(module: str) -> frozenset[str] | None:
    """Return the connection types of the installed provider with *module* among its operators. None without one.

    This imports only the descriptions of providers.
    """
    return _providers().get(module)


@cache
def _providers() -> dict[str, frozenset[str]]:
    from airflow.providers_manager import ProvidersManager

    found: dict[str, frozenset[str]] = {}
    providers = ProvidersManager().providers  # type: ignore[no-untyped-call]
    for provider in providers.values():
        types = frozenset(each["connection-type"] for each in provider.data.get("connection-types", ()))
        for group in provider.data.get("operators", ()):
            found |= dict.fromkeys(group["python-modules"], types)
    return found


def _option(name: str) -> list[str]:
    # Airflow 3.1 would split fallback=[] as text.
    return [each for each in conf.getlist("hivelock", name, fallback="") if each]
