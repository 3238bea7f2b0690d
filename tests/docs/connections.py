"""Connections of type ``hivelock`` in the documents, held to what reads them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from airflow_hivelock.hooks import Settings
from airflow_hivelock.locks import HiveLockError, StoreUnavailable, connect

if TYPE_CHECKING:
    from collections.abc import Callable

ELSEWHERE = ("metastore", "hiveserver2")
"""Lock stores that are not here: of connections to them only the reading is tried."""


MASKED = 5
"""The fewest characters of a value in an extra that Airflow does not warn of; ``[logging] min_length_masked_secret``."""


def read(connection: Any, here: Callable[[str], str]) -> None:
    """Read it, and connect; one that asks for TLS, say, finds none here, and has been understood all the same.

    :raises InvalidRequest: it cannot be meant, or has an option that its lock store does not know.
    """
    settings = Settings.of(connection)
    assert len(settings.installation) >= MASKED, "Airflow would warn in each task's log that it is too short to mask"
    if urlsplit(settings.url).scheme not in ELSEWHERE:
        with suppress(StoreUnavailable):
            try:
                connect(here(settings.url)).close()
            except HiveLockError as error:
                if type(error) is not HiveLockError:  # a library that is not here
                    raise


def of(url: str) -> str:
    """What leads to *url*, in the words of ``AIRFLOW_CONN_…``."""
    parts = urlsplit(url)
    extra = {"installation": "prod", **dict(parse_qsl(parts.query))}
    return json.dumps({"conn_type": "hivelock", "host": parts.netloc, "schema": parts.path, "extra": extra})
