"""Connections of type ``hivelock`` in the documents, held to what reads them."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from airflow.sdk import Connection
from airflow.sdk._shared.secrets_masker import SecretsMasker, secrets_masker

from airflow_hivelock.locks import HiveLockError, StoreUnavailable, connect
from airflow_hivelock.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

ELSEWHERE = ("metastore", "hiveserver2")
"""Lock stores that are not here: of connections to them only the reading is tried."""


def read(connection: Any, here: Callable[[str], str]) -> None:
    """Read it as a task and as we do, and connect; one that asks for TLS, say, finds none here, and has been understood all the same.

    :raises InvalidRequest: it cannot be meant, or has an option that its lock store does not know.
    """
    assert not warnings_of(connection), "each task's log would begin with this warning"
    settings = Settings.of(connection)
    if urlsplit(settings.url).scheme not in ELSEWHERE:
        with suppress(StoreUnavailable):
            try:
                connect(here(settings.url)).close()
            except HiveLockError as error:
                if type(error) is not HiveLockError:  # a library that is not here
                    raise


def warnings_of(connection: Any) -> list[str]:
    """What Airflow's masker logs when a task loads *connection*: it masks each text of the extra, except short ones."""
    fields = ("conn_type", "host", "schema", "login", "password", "port", "extra")
    loaded = Connection(conn_id="documented", **{name: getattr(connection, name) for name in fields})
    logged: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    SecretsMasker._has_warned_short_secret = False
    secrets_masker.log.addHandler(handler)
    try:
        loaded.get_uri()  # as Airflow keeps it for the next one who asks
        assert loaded.extra_dejson or not loaded.extra
    finally:
        secrets_masker.log.removeHandler(handler)
    return logged


def of(url: str) -> str:
    """What leads to *url*, in the words of ``AIRFLOW_CONN_…``."""
    parts = urlsplit(url)
    extra = {"installation": "etl-prod", **dict(parse_qsl(parts.query))}
    return json.dumps({"conn_type": "hivelock", "host": parts.netloc, "schema": parts.path, "extra": extra})
