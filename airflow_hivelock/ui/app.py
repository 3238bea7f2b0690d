"""The page's web application, which is mounted in Airflow's API server. Only users who may see plugins may use it."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse

from airflow_hivelock.locks.errors import (
    AccessDenied,
    HiveLockError,
    InvalidRequest,
    StoreCorrupted,
    Unsupported,
)
from airflow_hivelock.ui import access, api

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = structlog.get_logger(__name__)


FILES = {file.name: file for file in (Path(__file__).parent / "static").iterdir()}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-ancestors 'self'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

SILENT = {
    AccessDenied: "The lock store refuses Airflow's API server. Correct the credentials of the connection, or "
    "the store's permissions.",
    StoreCorrupted: "The lock store contains data that this version cannot read. Upgrade airflow-hivelock on the API server, or "
    "check the data there.",
    HiveLockError: "The lock store does not answer. Leases stay held and running jobs continue, but no lock is granted or "
    "released. A waiting task fails after ten minutes. Check that the store is up, and that the API server reaches it.",
}
ASK_WHY = "On the API server's host, airflow hivelock --conn-id {} -e \"SHOW LOCKS\" shows the reason. So does the API server's log."

app = FastAPI(
    title="Hive locks",
    version=version("airflow-hivelock"),
    dependencies=[access.MAY_LOOK],
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
)


@app.middleware("http")
async def _harden(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await answer(request)
    response.headers.update(HEADERS)
    return response


@app.exception_handler(HiveLockError)
async def _refused(request: Request, error: HiveLockError) -> JSONResponse:
    if isinstance(error, InvalidRequest | Unsupported):
        return JSONResponse({"detail": str(error)}, 400)
    log.warning("The page cannot look at the lock store: %s", error)  # not shown to the user, because it names servers
    message = next(message for kind, message in SILENT.items() if isinstance(error, kind))
    connection_id = request.path_params.get("connection_id", "")
    return JSONResponse({"detail": f"{message} {ASK_WHY.format(connection_id)}"}, 503)


@app.exception_handler(RequestValidationError)
async def _malformed(_: Request, error: RequestValidationError) -> JSONResponse:
    # Without the input, because a lone surrogate cannot be sent back.
    return JSONResponse({"detail": "; ".join(str(each["msg"]) for each in error.errors())}, 422)


@app.get("/", include_in_schema=False)
def page() -> FileResponse:
    return FileResponse(FILES["index.html"])


@app.get("/static/{name}", include_in_schema=False)
def static(name: str) -> FileResponse:
    if name not in FILES:
        raise HTTPException(404, "Not found")
    return FileResponse(FILES[name])


app.include_router(api.router)
