"""``locks="assets"``: takes the names from a task's inlets and outlets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import structlog

from airflow_hivelock.locks.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

log = structlog.get_logger(__name__)


def names_of_assets(locks: Any, arguments: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The ``reads`` and ``writes`` of a task with these *arguments*, including those of its assets.

    :raises InvalidRequest: *locks* is not "assets", or no inlet or outlet is an asset of Hive.
    """
    # Airflow merges default_args into the operator's arguments only later.
    arguments = {**(arguments.get("default_args") or {}), **arguments}
    task_id = arguments.get("task_id")
    if locks != "assets":
        raise InvalidRequest(f"{task_id}: locks={locks!r} is unknown. Use 'assets' or remove it")
    names: dict[str, list[Any]] = {}
    found = 0
    for argument, whence in (("reads", "inlets"), ("writes", "outlets")):
        own = arguments.get(argument) or ()
        if isinstance(own, str) or not isinstance(own, list | tuple):
            raise InvalidRequest(f"{task_id}: {argument}={own!r} together with locks='assets' must be a list of names")
        assets = arguments.get(whence) or ()
        named = [_name(asset, task_id) for asset in (assets if isinstance(assets, list | tuple) else (assets,))]
        names[argument] = [*own, *filter(None, named)]
        found += len(names[argument]) - len(own)
    if not found:
        raise InvalidRequest(
            f"{task_id}: locks='assets', but its inlets and outlets have no asset of Hive. Add one, as in "
            "Asset('hive://hive:10000/dw/delays', extra={'partition': 'dt={{ ds }}'})"
        )
    return names


def _name(asset: Any, task_id: Any) -> str | None:
    """The lock name of *asset*. None if it is not an asset of Hive."""
    uri = urlsplit(str(getattr(asset, "uri", "")))
    if uri.scheme != "hive":
        log.debug("This asset is not of Hive, so no lock is taken for it", task_id=task_id, asset=str(asset))
        return None
    table = [unquote(part) for part in uri.path.split("/") if part]
    if len(table) != 2:  # Airflow's Hive provider has the same rule
        raise InvalidRequest(f"{task_id}: asset {asset.uri!r} names no table. Write hive://host:port/database/table")
    partition = (getattr(asset, "extra", None) or {}).get("partition") or ""
    if not isinstance(partition, str):
        raise InvalidRequest(f"{task_id}: the partition of asset {asset.uri!r} must be a text, as 'dt={{{{ ds }}}}'")
    return ".".join(table) + (f"/{partition}" if partition else "")
