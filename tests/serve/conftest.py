"""One server for the tests of the page: its worker process is what takes the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("httpx2", reason="FastAPI's test client needs httpx2")

from fastapi.testclient import TestClient

from meshcast.serve import create_app
from meshcast.serve.limits import ServeLimits

ROOT = Path(__file__).resolve().parents[2]
SHARDED = (ROOT / "tests" / "fixtures" / "sharded.mlir").read_bytes()
TINY: dict[str, Any] = {"model": "llama3-tiny", "on": "dgx-h100", "settings": {"batch": "8"}}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def page(runs: Path) -> Iterator[TestClient]:
    """A client of a server with one worker."""
    limits = ServeLimits(upload_bytes=2**20, body_bytes=64 * 2**10)
    with TestClient(create_app(runs=runs, workers=1, limits=limits, warm=False), base_url="http://localhost") as client:
        yield client


def answered(page: TestClient, method: str, path: str, **request: Any) -> Any:
    """The answer, however long it takes."""
    found = page.request(method, path, **request)
    started = time.monotonic()
    while found.status_code == 202 and time.monotonic() - started < 120:
        found = page.get(f"/api/jobs/{found.json()['job']}?wait=10")
    return found
