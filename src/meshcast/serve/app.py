"""The server's routes: what is asked over HTTP goes to workers, what they say comes back; the page itself is files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.staticfiles import StaticFiles

from meshcast.base import VERSION
from meshcast.report import STATIC as REPORT_FILES
from meshcast.serve.guard import LOOPBACK, REPORT_POLICY, UPLOADS, Guard
from meshcast.serve.limits import ServeLimits
from meshcast.serve.messages import (
    AnswerPart,
    Configuration,
    ErrorAnswer,
    Made,
    Pending,
    RunConfig,
    SearchRequest,
    SearchState,
    Uploaded,
)
from meshcast.serve.pool import WORKER, PageAnswer, QuestionJob, WorkerPool, error_body
from meshcast.serve.problems import add_errors, sent
from meshcast.serve.searches import SearchDesk
from meshcast.serve.shelf import ProgramShelf

STATIC = Path(__file__).parent / "static"
HTML = "text/html"
AS_BYTES = "send the file's bytes alone: curl --data-binary @step.mlir"
COMMAND_LINE = "the command line reads it: meshcast predict FILE --plan PLAN"
QUICK_S = 0.9  # a request waits so long for its answer before it is told how to ask after it
Wait = Annotated[
    float, Query(ge=0.0, le=60.0, description="Seconds to wait for the answer before it is told to ask again.")
]
PROBLEMS: dict[int | str, dict[str, Any]] = {
    202: {"model": Pending, "description": "The answer is being worked on."},
    422: {"model": ErrorAnswer, "description": "What is asked cannot be answered, and why."},
    429: {"model": ErrorAnswer, "description": "Too many questions wait."},
}


def create_app(
    *, runs: Path = Path(), workers: int = 2, hosts: tuple[str, ...] = LOOPBACK, limits: ServeLimits | None = None,
    worker: str = WORKER, warm: bool = True,
) -> FastAPI:  # fmt: skip
    """The application: for a server, or for tests.

    Args:
        runs: The folder with run folders.
        workers: Processes that predict.
        hosts: Names that it may be called by.
        limits: How much it takes.
        worker: The module that they run.
        warm: Whether they load what answers need ahead of the first question.
    """
    limit = limits or ServeLimits()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with tempfile.TemporaryDirectory(prefix="meshcast-serve-") as scratch:
            app.state.pool = pool = WorkerPool(Path(scratch), workers=workers, limits=limit, module=worker)
            app.state.desk = desk = SearchDesk(runs, Path(scratch), limit, workers=workers)
            if warm:
                pool.start()
            try:
                yield
            finally:
                desk.close()
                pool.close()

    app = FastAPI(
        title="meshcast", version=VERSION, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json",
        description="Predictions of step time, memory, communication and energy, as the page on localhost asks for them.",
    )  # fmt: skip
    app.state.shelf = ProgramShelf(limit.programs_bytes)
    app.state.limits = limit
    app.add_middleware(Guard, hosts=tuple(name.lower() for name in hosts), limits=limit)
    add_errors(app)
    _add_questions(app)
    _add_searches(app)
    # What reports have inside: the styles and scripts of their sections, and the plots' library.
    app.mount("/report", StaticFiles(directory=REPORT_FILES), name="report")
    app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    return app


def _add_questions(app: FastAPI) -> None:
    @app.get("/api/catalogue", summary="Models, hardware and stacks that can be chosen", responses=PROBLEMS)
    async def catalogue(wait: Wait = 30.0) -> Response:
        return await _asked(app, {"kind": "catalogue"}, wait=wait)

    @app.post("/api/choices", summary="What a configuration can be changed to", responses=PROBLEMS)
    async def choices(asked: Configuration, wait: Wait = QUICK_S) -> Response:
        return await _asked(app, {"kind": "choices", "asked": _plain(asked)}, wait=wait)

    @app.post("/api/predict", summary="The prediction of a configuration", responses=PROBLEMS)
    async def predict(asked: Configuration, wait: Wait = QUICK_S) -> Response:
        """Answers with what `meshcast predict --json` prints, `meshcast.prediction/1`."""
        return await _of_configuration(app, "predict", asked, wait)

    @app.post("/api/sections", summary="Sections of a report of a configuration", responses=PROBLEMS)
    async def sections(asked: Configuration, part: AnswerPart = "summary", wait: Wait = QUICK_S) -> Response:
        """Answers with the prediction and its sections, as HTML and as the data that the report's scripts draw from."""
        return await _of_configuration(app, "sections", asked, wait, part=part)

    @app.post(
        UPLOADS,
        summary="Hands in a program, StableHLO as text or bytecode",
        response_model=Uploaded,
        responses=PROBLEMS,
    )
    async def programs(request: Request, name: Annotated[str, Query(max_length=200)] = "program.mlir") -> Response:
        if request.headers.get("content-type", "").startswith("multipart/"):
            said = error_body(
                "usage", "a form is no program: its file is wrapped in others' lines", where="body", fix=AS_BYTES
            )
            return sent(PageAnswer(status=415, body=said))
        data = await request.body()
        told = re.sub(r"[^A-Za-z0-9._-]+", "-", re.sub(r"(\.mlir|\.mlirbc)$", "", name)).strip("-.") or "program"
        digest = hashlib.sha256(data).hexdigest()
        question = {"kind": "program", "name": told[:80], "digest": digest}
        answer = await _answer(app, question, data or b"\n", wait=app.state.limits.answer_s)
        if answer.status == 200:
            app.state.shelf.put(told[:80], data)
            body = json.dumps({"program": digest, **json.loads(answer.body)}).encode()
            answer = PageAnswer(status=200, body=body)
        return sent(answer)

    @app.post("/api/reports", summary="Makes a report of a configuration", response_model=Made, responses=PROBLEMS)
    async def reports(asked: Configuration, wait: Wait = QUICK_S) -> Response:
        return await _of_configuration(app, "report", asked, wait)

    @app.get("/reports/{key}", summary="A report, one HTML file", include_in_schema=False)
    async def report(key: str) -> Response:
        found: PageAnswer | None = app.state.pool.kept(key)
        if found is None or found.media_type != HTML:
            return sent(PageAnswer(status=404, body=error_body("gone", "no such report, or it has been let go")))
        headers = {
            "content-security-policy": REPORT_POLICY,
            "cross-origin-opener-policy": "same-origin-allow-popups",  # of Perfetto's window, which the trace is handed to
            "cache-control": "no-store",
        }
        return Response(found.body, media_type=HTML, headers=headers)

    @app.get("/api/jobs/{number}", summary="An answer that was not there at once", responses=PROBLEMS)
    async def job(number: str, wait: Wait = QUICK_S) -> Response:
        found = app.state.pool.job(number)
        if found is None:
            return sent(
                PageAnswer(status=404, body=error_body("unknown", "no such job, or its answer has been let go"))
            )
        return sent(_told(found.key, await _awaited(app, found, wait)))

    @app.delete("/api/jobs/{number}", summary="Lets go of a question that waits", status_code=204)
    async def let_go(number: str) -> Response:
        found = app.state.pool.job(number)
        if found is not None:
            app.state.pool.drop(found)
        return Response(status_code=204)


def _add_searches(app: FastAPI) -> None:
    @app.post("/api/searches", summary="Starts a search for plans", response_model=SearchState, responses=PROBLEMS)
    async def start(asked: SearchRequest) -> Response:
        # Names are checked where predictions check them, before a process is started for them.
        known = []
        for name in asked.on:
            checked = Configuration(
                model=asked.model, config=asked.config, on=name, settings=asked.settings, **asked.how()
            )
            question = {"kind": "choices", "asked": {**_plain(checked), "devices": 1}}
            answer = await _answer(app, question, b"", wait=app.state.limits.answer_s)
            if answer.status != 200:
                return sent(answer)
            known.append(json.loads(answer.body))
        # By the names of the catalogues from here on: a search's file must name nothing else.
        names: dict[str, Any] = {"on": [each["on"] for each in known]}
        if asked.model is not None:
            mode = {} if known[0]["mode"] == "train" else {"mode": known[0]["mode"]}
            names |= {"model": known[0]["name"], "settings": {**asked.settings, **mode}}
        state: SearchState = await asyncio.to_thread(app.state.desk.start, asked.model_copy(update=names))
        return Response(state.model_dump_json(), media_type="application/json", status_code=201)

    @app.delete("/api/searches/{name}", summary="Stops a search, which keeps what it has", response_model=SearchState)
    async def stop(name: str) -> Response:
        return await _state(app.state.desk.stop, name)

    @app.get("/api/runs", summary="Searches that run, and run folders of earlier ones")
    async def runs() -> dict[str, Any]:
        return {"schema": "meshcast.page-runs/1", "runs": await asyncio.to_thread(app.state.desk.listed)}

    @app.post("/api/runs/{name}/report", summary="Makes a report of a run", response_model=Made, responses=PROBLEMS)
    async def run_report(name: str, wait: Wait = QUICK_S) -> Response:
        try:
            folder, changed = app.state.desk.folder(name)
        except KeyError:
            return sent(PageAnswer(status=404, body=error_body("unknown", f"no run {name[:100]!r}")))
        return await _asked(app, {"kind": "folder", "folder": str(folder), "changed": changed}, wait=wait)

    @app.get("/api/runs/{name}/config", summary="The config.json that a run was started over", response_model=RunConfig)
    async def run_config(name: str) -> Response:
        try:
            text = await asyncio.to_thread(app.state.desk.config, name)
        except KeyError:
            gone = error_body("unknown", "this run's model is a file that the page does not have", fix=COMMAND_LINE)
            return sent(PageAnswer(status=404, body=gone))
        return Response(RunConfig(config=text).model_dump_json(), media_type="application/json")

    @app.get("/api/runs/{name}", summary="How far a search is, and its points", response_model=SearchState)
    async def run(name: str) -> Response:
        return await _state(app.state.desk.state, name)


async def _state(ask: Any, name: str) -> Response:
    try:
        state: SearchState = await asyncio.to_thread(ask, name)
    except KeyError:
        return sent(PageAnswer(status=404, body=error_body("unknown", f"no run {name[:100]!r}")))
    return Response(state.model_dump_json(), media_type="application/json")


def _plain(asked: Configuration) -> dict[str, Any]:
    return asked.model_dump()


async def _of_configuration(app: FastAPI, kind: str, asked: Configuration, wait: float, **more: str) -> Response:
    """A question about a configuration, with the bytes of its program where it has one."""
    plain, data = _plain(asked), b""
    if asked.program is not None:
        held = app.state.shelf.get(asked.program)
        if held is None:
            gone = error_body("gone", "the server does not hold this program any more", fix="drop the file again")
            return sent(PageAnswer(status=410, body=gone))
        plain["program_name"], data = held
    question = {"kind": kind, "asked": plain, **more}
    if kind != "predict":
        question["command"] = asked.command(plain.get("program_name"))
    return await _asked(app, question, data, wait=wait)


async def _asked(app: FastAPI, question: dict[str, Any], data: bytes = b"", *, wait: float) -> Response:
    return sent(await _answer(app, question, data, wait=wait))


async def _answer(app: FastAPI, question: dict[str, Any], data: bytes, *, wait: float) -> PageAnswer:
    """The answer to a question; where it takes longer than `wait`, where it will be."""
    key = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
    kept: PageAnswer | None = app.state.pool.kept(key)
    if kept is not None:
        return _told(key, kept)
    return _told(key, await _awaited(app, app.state.pool.ask(key, question, data), wait))


def _told(key: str, answer: PageAnswer) -> PageAnswer:
    """An answer as scripts get it: of a report, where it is."""
    if answer.media_type != HTML:
        return answer
    return PageAnswer(status=200, body=Made(url=f"/reports/{key}").model_dump_json().encode())


async def _awaited(app: FastAPI, job: QuestionJob, wait: float) -> PageAnswer:
    future = asyncio.wrap_future(job.future)
    limit = app.state.limits
    done, _ = await asyncio.wait(
        {asyncio.ensure_future(_result(future))}, timeout=min(wait, limit.wait_s + limit.answer_s)
    )
    for task in done:
        found: PageAnswer = task.result()
        return found
    seconds = asyncio.get_running_loop().time() - job.asked_at
    pending = Pending(job=job.number, state=job.state, seconds=round(max(seconds, 0.0), 2), said=job.said())
    return PageAnswer(status=202, body=pending.model_dump_json().encode())


async def _result(future: asyncio.Future[PageAnswer]) -> PageAnswer:
    # A request that goes away must not take the answer from the others that wait for it.
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        return PageAnswer(status=409, body=error_body("let-go", "the question was let go of"), lasting=False)
