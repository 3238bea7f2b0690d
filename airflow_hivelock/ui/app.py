"""The page's web application, which is mounted in Airflow's API server. Only users who may see plugins may use it."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse

from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, Unsupported
from airflow_hivelock.ui import access, api, problems

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
    if isinstance(error, InvalidRequest | Unsupported) and not error.of_connection:
        return JSONResponse({"detail": str(error)}, 400)
    log.warning("The page cannot look at the lock store: %s", error)  # not shown to the user, because it names servers
    return JSONResponse({"detail": problems.silent(error, request.path_params.get("connection_id", ""))}, 503)


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
