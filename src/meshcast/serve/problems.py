"""What is wrong with a request, as an answer: the tool's own error object with a status of HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

from meshcast.base import MeshcastError, nearest
from meshcast.serve.messages import Configuration, SearchRequest
from meshcast.serve.pool import BusyError, PageAnswer, error_body
from meshcast.serve.wording import on_the_page

JSON = "application/json"
EXAMPLE = '{"model": "llama3-8b", "on": "dgx-h100", "plan": "fsdp=8", "settings": {"batch": "8"}}'


def add_errors(app: FastAPI) -> None:
    """Has an application tell everything that it refuses as the tool tells its errors."""

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        # Files lie behind everything, and know nothing of routes that take other methods.
        others = {each for route in app.routes for each in _other_methods(route, request)}
        status, headers = (405, {"allow": ", ".join(sorted(others))}) if others else (error.status_code, error.headers)
        body = _http_problem(status, request, (headers or {}).get("allow", "GET"))
        return Response(body, status_code=status, media_type=JSON, headers=headers)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        said = "a mistake of the server's, which its log has whole"
        return sent(PageAnswer(status=500, body=error_body("bug", said, where=request.url.path)))

    @app.exception_handler(RequestValidationError)
    async def refused(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        said = str(first["msg"]).removeprefix("Value error, ")
        return sent(PageAnswer(status=422, body=error_body("usage", said, where=where or None, fix=_fix(first))))

    @app.exception_handler(MeshcastError)
    async def told(request: Request, error: MeshcastError) -> Response:
        return sent(PageAnswer(status=422, body=json.dumps(on_the_page(error.to_json())).encode()))

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> Response:
        return sent(
            PageAnswer(status=429, body=error_body("busy", "too much is being worked on", fix="try again soon"))
        )


def _fix(problem: Mapping[str, Any]) -> str:
    """What to change of a request that pydantic refuses."""
    kind, limits = str(problem["type"]), problem.get("ctx") or {}
    name = str(problem["loc"][-1]) if problem["loc"] else ""
    if kind == "extra_forbidden":
        return nearest(name, {**Configuration.model_fields, **SearchRequest.model_fields})
    if kind == "literal_error":
        return f"one of {limits['expected']}"
    if kind == "json_invalid" or not name or name == "body":
        return f"send one JSON object, such as {EXAMPLE}"
    if kind.startswith(("int_", "float_", "greater_than", "less_than")):
        low, high = (limits.get(short, limits.get(long)) for short, long in (("ge", "gt"), ("le", "lt")))
        bounds = [f"of {low:g} or more" if low is not None else "", f"of {high:g} at most" if high is not None else ""]
        return " ".join(["give a number", *filter(None, bounds)])
    if kind == "string_pattern_mismatch":
        return "names have letters, digits, dots, dashes and underscores; /api/catalogue has those that are known"
    return "/api/openapi.json says what is taken"


def _other_methods(route: BaseRoute, request: Request) -> set[str]:
    """The methods that a route takes for a request's path, where the request's is none of them."""
    if not isinstance(route, Route) or route.matches(request.scope)[0] is not Match.PARTIAL:
        return set()
    return set(route.methods or ()) - {"HEAD"}


def _http_problem(status: int, request: Request, allowed: str) -> bytes:
    """What HTTP itself refuses, told as everything else is."""
    where = f"{request.method[:20]} {request.url.path[:200]}"
    if status == 404:
        return error_body("unknown", "nothing is there", where=where, fix="/api/openapi.json names every route")
    if status == 405:
        return error_body("usage", "this is not asked so", where=where, fix=f"use {allowed}")
    said = HTTPStatus(status).phrase.lower()
    return error_body("usage", said, where=where, fix="/api/openapi.json says what is taken")


def sent(answer: PageAnswer) -> Response:
    """An answer as it goes over the wire; browsers keep none."""
    headers = {"cache-control": "no-store"}
    return Response(answer.body, status_code=answer.status, media_type=answer.media_type, headers=headers)
