"""A browser on the page's application, the modules of the page, and locks to look at."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

# Airflow's own warnings.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    from airflow_hivelock.ui import access, answers, changes, hiding, holders, looks, view, works
    from airflow_hivelock.ui import app as page

from airflow_hivelock.spec import Owner
from airflow_hivelock.ui.change_pool import ChangePool
from airflow_hivelock.ui.reads import SharedReads
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import Processes

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import Lease

__all__ = ["access", "answers", "changes", "create_auth_manager", "hiding", "holders", "looks", "page", "view", "works"]

Login = Callable[[str | None], TestClient]

API = "/api/v1/hivelock_default"
CURRENT, LEASES = f"{API}/current", f"{API}/leases"
ASKED = {"X-Hivelock": "release"}

each_role_and_site = pytest.mark.parametrize(
    ("role", "headers", "status"),
    [
        (None, ASKED, 401),
        ("viewer", ASKED, 403),
        ("user", ASKED, 403),
        ("op", {}, 403),
        ("op", {**ASKED, "Sec-Fetch-Site": "cross-site"}, 403),
        ("op", {**ASKED, "Sec-Fetch-Site": "same-site"}, 403),
        ("op", {**ASKED, "Sec-Fetch-Site": "same-origin"}, 200),
        ("admin", ASKED, 200),
    ],
)
"""Who sends a change, from where, and the status of the answer."""


def logins(monkeypatch: pytest.MonkeyPatch) -> Login:
    """Return a function that makes a browser, signed in with a role; None is signed out."""
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
    monkeypatch.setenv(
        "AIRFLOW__API_AUTH__JWT_SECRET", "a secret of at least sixty-four bytes, for these tests and for nothing else"
    )
    monkeypatch.setattr(looks, "reads", SharedReads("store", patience_s=20))
    monkeypatch.setattr(changes, "pool", ChangePool(patience_s=20))
    monkeypatch.setattr(looks, "asks", SharedReads("clusters", patience_s=20))
    auth = create_auth_manager()
    auth.init()
    access._permitted.clear()
    access._may_release.clear()
    looks._shown.clear()
    looks._need_action.clear()
    looks._rows.clear()

    def client(role: str | None) -> TestClient:
        made = TestClient(page.app, raise_server_exceptions=False)
        if role is not None:
            user: Any = SimpleAuthManagerUser(username=f"some {role}", role=role)
            made.cookies.set("_token", auth.generate_jwt(user))
        return made

    return client


def owner(dag_id: str = "daily", run_id: str = "r1", installation: str = "here") -> str:
    return str(Owner(installation, dag_id, run_id, "load"))


def hold(manager: LockManager, who: str = "", **what: Any) -> Lease:
    return manager.acquire(owner=who or owner(), writes=["dw.t/dt=1"], **what)


def on_worker(manager: LockManager, dag_id: str = "daily") -> Lease:
    lease = manager.acquire(owner=owner(dag_id), reads=["dw.t"])
    return manager.start_work(lease, "load", encode(Processes(host="worker-7")))
