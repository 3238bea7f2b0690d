"""What a browser, or any signed-in user, may send to the page: the first line has method and path, the rest is the
body.
"""

from __future__ import annotations

import json
import warnings
from typing import Any
from unittest import mock
from urllib.parse import quote

from hypothesis import strategies as st

# Airflow's own warnings.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import httpx
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from airflow_hivelock.ui import access, looks
    from airflow_hivelock.ui import app as page

from airflow_hivelock import hooks
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks import LockManager
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.settings import Settings
from airflow_hivelock.ui.reads import SharedReads
from tests.fuzz.target import ODD, ODD_TEXT, Target, text_of

ALLOWED = {200, 304, 400, 404, 405, 409, 422, 307, 403}


class _User:
    def get_id(self) -> str:
        return "1"

    def get_name(self) -> str:
        return "ann"


class _Site:
    """The application, with a user who may do all, and one lease."""

    def __init__(self) -> None:
        overrides: dict[Any, Any] = {access.MAY_LOOK.dependency: lambda: None, get_user: _User}
        overrides[access.MAY_RELEASE.dependency] = _User
        self.overrides = overrides
        self.client = TestClient(page.app, raise_server_exceptions=False)
        self.reads = SharedReads("store", patience_s=20)

    def ask(self, method: str, path: str, body: bytes, manager: LockManager) -> Any:
        with (
            mock.patch.dict(page.app.dependency_overrides, self.overrides),
            mock.patch.dict(hooks._managers, {"memory://": manager}),
            mock.patch.object(HiveLockHook, "settings", Settings("memory://", "here")),
            mock.patch.object(looks, "reads", self.reads),
            mock.patch.object(looks, "FRESH_S", 0.0),
            mock.patch.object(looks, "HISTORY_FRESH_S", 0.0),
            mock.patch.object(looks, "_shown", {}),
            mock.patch.object(looks, "HOLDERS_FRESH_S", 0.0),
            mock.patch.object(access, "connection_ids", return_value=["hivelock_default"]),
            mock.patch.object(access, "hidden", return_value=frozenset()),
            mock.patch.object(access, "may_release", return_value=True),
            mock.patch.object(access, "task_facts", return_value={}),
            mock.patch.object(access, "sensors", return_value=[]),
        ):
            headers = {"X-Hivelock": "release", "Content-Type": "application/json"}
            return self.client.request(method, path, content=body, headers=headers, follow_redirects=False)


_sites: list[_Site] = []


def request(data: bytes) -> None:
    """Every request is answered or refused, and never crashes the page. Each release is on record with its user."""
    if not _sites:
        _sites.append(_Site())
    manager = LockManager(MemoryBackend())
    held = manager.acquire(owner="here/dag/run/held/-1", writes=["dw.t/dt=1"])
    line, _, body = data.replace(b"@LEASE", held.id.encode()).partition(b"\n")
    method, _, path = text_of(line).partition(" ")
    if method not in ("GET", "POST", "PUT") or not path.isascii() or not path.isprintable():
        return
    try:
        answer = _sites[0].ask(method, "/" + path.lstrip("/"), body, manager)
    except httpx.InvalidURL:
        return  # no browser would send it either
    assert answer.status_code in ALLOWED, f"{answer.status_code}: {answer.text[:200]}"
    freed = manager.find(held.id) is None
    assert [(entry.user, entry.lease_id) for entry in manager.audit()] == ([("ann (1)", held.id)] if freed else [])
    assert not freed or (method == "POST" and all(entry.reason.strip() for entry in manager.audit()))


_LEASES = ODD_TEXT.map(lambda text: quote(text, safe="", errors="surrogatepass"))
_PATHS = st.one_of(
    st.just("GET api/v1/hivelock_default/current"),
    st.just("GET api/v1/hivelock_default/audit"),
    ODD_TEXT.map(lambda text: f"GET api/v1/hivelock_default/history?hours={quote(text, errors='surrogatepass')}"),
    _LEASES.map(lambda text: f"GET api/v1/{text}/current"),
    _LEASES.map(lambda text: f"GET api/v1/hivelock_default/history?object={text}&owner={text}&limit=2"),
    _LEASES.map(lambda text: f"GET api/v1/hivelock_default/audit?object=dw.t&limit={text}"),
    st.just("POST api/v1/hivelock_default/hive/release"),
    _LEASES.map(lambda text: f"GET static/{text}"),
    _LEASES.map(lambda text: f"GET api/v1/hivelock_default/leases/{text}"),
    _LEASES.map(lambda text: f"POST api/v1/hivelock_default/leases/{text}/release"),
    st.just("POST api/v1/hivelock_default/leases/@LEASE/release"),
    st.just("PUT api/v1/hivelock_default/leases/@LEASE/release"),
    st.sampled_from(("requests/withdraw", "requests/priority", "reservations")).map(
        lambda what: f"POST api/v1/hivelock_default/{what}"
    ),
)
_BODIES = st.one_of(
    st.fixed_dictionaries(
        {"reason": ODD_TEXT, "owner": ODD_TEXT, "object": ODD_TEXT, "until": ODD_TEXT, "priority": ODD}
    ).map(lambda body: json.dumps(body).encode()),
    (ODD_TEXT | st.text(max_size=1_200)).map(lambda reason: json.dumps({"reason": reason}).encode()),
    ODD.map(lambda value: json.dumps(value).encode()),
    ODD.map(lambda value: json.dumps({"reason": value}).encode()),
    st.binary(max_size=20),
    st.just(b"[" * 9_000),
)
TARGETS = (Target("page", request, st.builds(lambda path, body: path.encode() + b"\n" + body, _PATHS, _BODIES)),)
