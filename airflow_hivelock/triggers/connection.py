"""The connection of triggers that wait. Hundreds start together when a triggerer takes over, and look it up once."""

from __future__ import annotations

import asyncio

from airflow_hivelock import comms
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks.errors import HiveLockError

CONNECTION_S = 30.0
"""How long the triggerer keeps a connection that it looked up."""

_hooks: dict[str, tuple[float, asyncio.Task[HiveLockHook]]] = {}


async def hook_of(conn_id: str) -> HiveLockHook:
    """
    :raises HiveLockError: Airflow does not answer, or the connection cannot be used.
    """
    loop = asyncio.get_running_loop()
    until, loading = _hooks.get(conn_id, (0.0, None))
    if loading is None or loading.get_loop() is not loop or loop.time() > until:
        loading = loop.create_task(_load(conn_id))
        _hooks[conn_id] = loop.time() + CONNECTION_S, loading
    return await asyncio.shield(loading)


async def _load(conn_id: str) -> HiveLockHook:
    hook = HiveLockHook(conn_id)
    try:
        await comms.load(hook)
    except BaseException as error:
        _hooks.pop(conn_id, None)
        if isinstance(error, TimeoutError):
            raise HiveLockError(f"Airflow did not give connection {conn_id!r} within {comms.ANSWER_S:g} s") from error
        raise
    return hook
