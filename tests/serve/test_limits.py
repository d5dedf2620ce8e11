"""What the server holds, waits for and puts up with: small limits, and a worker that does what its question's name says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from meshcast.serve import create_app
from meshcast.serve.guard import Guard
from meshcast.serve.limits import ServeLimits
from tests.serve.conftest import ROOT

Served = Callable[..., TestClient]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A client of a server with one worker that does what it is told, and limits of one's own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with ExitStack() as clients:

        def make(**limits: Any) -> TestClient:
            app = create_app(
                runs=tmp_path, workers=1, limits=ServeLimits(**limits), worker="tests.serve.small_worker", warm=False
            )
            return clients.enter_context(TestClient(app, base_url="http://localhost"))

        yield make


def _ask(page: TestClient, name: str, wait: float = 30) -> Any:
    return page.post(f"/api/choices?wait={wait}", json={"model": name})


def _alive(page: TestClient, name: str) -> int:
    """The process that answers; one that is still starting when its time is up has begun anew."""
    for attempt in range(20):
        found = _ask(page, f"{name}-{attempt}")
        if found.status_code == 200:
            return int(found.json()["process"])
    raise AssertionError(found.text)


def _error(found: Any) -> tuple[int, str]:
    return found.status_code, found.json()["error"]["code"]


def test_workers_that_die_sleep_or_eat_are_told_and_replaced(served: Served) -> None:
    page = served(answer_s=3)
    first = _alive(page, "a")
    assert _error(_ask(page, "eats")) == (422, "memory-limit")
    assert _alive(page, "b") == first, "who is refused memory lives on"
    slept = _ask(page, "sleeps")
    assert _error(slept) == (422, "time-limit")
    assert "took longer than 3 s" in slept.json()["error"]["message"]
    second = _alive(page, "c")
    assert second != first
    dead = page.post("/api/programs?name=dies.mlir", content=b"x")
    assert _error(dead) == (422, "worker-died"), "what an upload does to a worker is the upload's fault"
    assert "SIGKILL" in dead.json()["error"]["message"]
    assert _error(_ask(page, "dies")) == (500, "worker-died"), "what names of the catalogue do to it is ours"
    assert _alive(page, "d") not in (first, second)
    again = page.post("/api/programs?name=dies.mlir", content=b"x")
    assert _error(again) == (422, "worker-died"), "it is asked again: dying is no answer that lasts"


def test_a_worker_that_keeps_too_much_is_replaced(served: Served) -> None:
    page = served(worker_bytes=2**28)
    first = _alive(page, "a")
    assert _alive(page, "b") == first
    assert _alive(page, "keeps") == first, "its answer is given all the same"
    assert _alive(page, "c") != first


def test_a_worker_that_somebody_ends_is_replaced_with_the_next_question(served: Served) -> None:
    page = served()
    (child,) = page.app.state.pool._all  # type: ignore[attr-defined]
    before = _alive(page, "a")
    os.kill(before, signal.SIGKILL)
    child._process.wait()
    assert _ask(page, "b").json()["process"] != before


def test_a_line_of_questions_has_an_end(served: Served) -> None:
    page = served(answer_s=20, waiting=1)
    running, waiting = _ask(page, "sleeps-1", wait=0), _ask(page, "sleeps-2", wait=0)
    assert (running.status_code, waiting.status_code) == (202, 202)
    assert _ask(page, "sleeps-1", wait=0).json()["job"] == running.json()["job"], "equal questions are one"
    refused = _ask(page, "sleeps-3", wait=0)
    assert _error(refused) == (429, "busy")
    assert refused.json()["error"]["fix"]
    assert page.delete(f"/api/jobs/{waiting.json()['job']}").status_code == 204
    assert _ask(page, "sleeps-3", wait=0).status_code == 202, "there is room again"
    assert page.get("/api/jobs/none").status_code == 404


def test_a_question_that_two_have_asked_is_not_let_go_by_one(served: Served) -> None:
    page = served(answer_s=20)
    _ask(page, "naps-1", wait=0)
    number = _ask(page, "naps-2", wait=0).json()["job"]
    _ask(page, "naps-2", wait=0)
    page.delete(f"/api/jobs/{number}")
    assert page.get(f"/api/jobs/{number}?wait=20").json()["asked"] == 2


def test_answers_are_held_up_to_a_number_and_a_size(served: Served) -> None:
    page = served(answers=2)
    assert [_ask(page, name).json()["asked"] for name in "aba"] == [1, 2, 1], "the same question is answered from there"
    assert _ask(page, "c").json()["asked"] == 3
    assert _ask(page, "a").json()["asked"] == 1, "used last but one, and held"
    assert _ask(page, "b").json()["asked"] == 4, "let go of, and asked again"
    page = served(answers_bytes=3000)
    for number, name in enumerate(("says-1000-x", "says-1001-x", "says-1002-x"), 1):
        assert _ask(page, name).json()["asked"] == number
    assert _ask(page, "says-1000-x").json()["asked"] == 4
    assert _ask(page, "says-5000-x").json()["asked"] == 5, "answered, and too large to be held"
    assert _ask(page, "says-5000-x").json()["asked"] == 6


def test_searches_at_once_are_counted(served: Served) -> None:
    asked = {"model": "a", "on": ["h200"], "devices": [2]}
    assert _error(served(searches=0).post("/api/searches", json=asked)) == (429, "busy")


def test_a_request_that_does_not_arrive_is_given_up() -> None:
    """The guard alone, as HTTP servers call it: a body of which the first part comes, and then nothing."""
    sent: list[MutableMapping[str, Any]] = []
    parts = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> MutableMapping[str, Any]:
        return parts.pop() if parts else await asyncio.Future()

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def unreached(*_: Any) -> None:
        raise AssertionError("nothing that is cut off goes further")

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/predict",
        "scheme": "http",
        "headers": [(b"host", b"localhost")],
    }
    guard = Guard(unreached, hosts=("localhost",), limits=ServeLimits(body_s=0.02))
    asyncio.run(guard(scope, receive, send))
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["error"]["code"] == "too-slow"


def test_what_http_refuses_is_told_as_everything_else(served: Served) -> None:
    page = served()
    for method, path, status in (
        ("GET", "/api/nothing", 404), ("GET", "/nothing.js", 404), ("PUT", "/api/predict", 405), ("POST", "/api/runs", 405),
    ):  # fmt: skip
        found = page.request(method, path)
        assert found.status_code == status
        assert set(found.json()["error"]) == {"code", "message", "where", "fix"}
    assert page.put("/api/predict").json()["error"]["fix"] == "use POST"
    form = page.post("/api/programs", files={"file": ("step.mlir", b"module {}")})
    assert _error(form) == (415, "usage")
    assert "--data-binary" in form.json()["error"]["fix"]
