"""Who may ask, how much, and what browsers are told about every answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from meshcast.serve.shelf import ProgramShelf
from tests.serve.conftest import SHARDED, TINY


@pytest.mark.parametrize("host", ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765", "LOCALHOST"])
def test_names_of_loopback_are_ours(page: TestClient, host: str) -> None:
    assert page.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "evil.example:8765", "", "127.0.0.1.evil.example"]
)
def test_other_names_are_not(page: TestClient, host: str) -> None:
    """DNS rebinding: another site's name that leads to this machine."""
    found = page.get("/api/runs", headers={"host": host})
    assert (found.status_code, found.json()["error"]["code"]) == (421, "host")
    assert page.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost", "http://localhost:1"])
def test_pages_of_others_may_not_ask(page: TestClient, origin: str) -> None:
    found = page.post("/api/predict", json=TINY, headers={"origin": origin})
    assert (found.status_code, found.json()["error"]["code"]) == (403, "origin")


def test_our_own_page_may(page: TestClient) -> None:
    assert page.get("/api/runs", headers={"origin": "http://localhost"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/main.js", "/api/runs", "/api/nothing", "/api/runs/none"])
def test_every_answer_tells_browsers_what_it_may_do(page: TestClient, path: str) -> None:
    headers = page.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere(page: TestClient) -> None:
    text = page.get("/").text
    assert "<style" not in text
    assert " style=" not in text
    assert "</script>" not in text.replace('"></script>', ""), "scripts are files"
    assert text.count("<script") == text.count('<script defer src="report/') + text.count(' src="main.js">')
    for name in ("main.js", "controls.js", "results.js", "search.js", "api.js", "plot.js", "style.css"):
        source = page.get(f"/{name}").text
        assert "://" not in source.replace("http://www.w3.org/2000/svg", "")
        assert "innerHTML" not in source
    # Markup comes from the server's own templates and from nowhere else, and is put in at one place.
    assert page.get("/sections.js").text.count("innerHTML") == 1


def test_too_much_is_refused(page: TestClient) -> None:
    large = page.post("/api/programs", content=b"x" * (2**20 + 1))
    assert (large.status_code, large.json()["error"]["code"]) == (413, "too-large")

    def pieces() -> Iterator[bytes]:  # without a length that could be looked at first
        for _ in range(20):
            yield b"x" * 2**16

    assert page.post("/api/programs", content=pieces()).status_code == 413
    assert page.post("/api/predict", content=b"{" + b" " * 2**17).status_code == 413


def test_what_is_no_request_is_refused(page: TestClient) -> None:
    for body in (b"", b"{", b"[]", b'"x"', b"\xff\xfe"):
        found = page.post("/api/predict", content=body, headers={"content-type": "application/json"})
        assert found.status_code == 422, body
        assert found.json()["error"]["code"] == "usage"


def test_programs_are_held_up_to_a_limit() -> None:
    shelf = ProgramShelf(limit=2 * len(SHARDED) + 8)
    digests = [shelf.put("p", SHARDED + bytes([48 + number])) for number in range(3)]
    assert [shelf.get(digest) is not None for digest in digests] == [False, True, True]


def test_paths_lead_nowhere_else(page: TestClient) -> None:
    for path in ("/../app.py", "/%2e%2e/app.py", "/..%5capp.py", "/api/runs/.ssh"):
        assert page.get(path).status_code == 404
