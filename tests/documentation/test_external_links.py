"""The check of links to other places, against a server of our own."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.documentation.external_links import addresses, main
from tests.documentation.pages import PAGES


class _Places(BaseHTTPRequestHandler):
    """`/there` is there, `/shy` answers no HEAD, all others are gone."""

    def do_HEAD(self) -> None:
        self._answer(200 if self.path == "/there" else 405 if self.path == "/shy" else 404)

    def do_GET(self) -> None:
        self._answer(200 if self.path in ("/there", "/shy") else 404)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def place() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Places)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_links_that_lead_nowhere_are_told(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"[there]({place}/there#part), <{place}/shy>, `{place}/there`.\n", encoding="utf-8")
    assert main([str(page)]) == 0
    assert capsys.readouterr().out == "2 of 2 links lead somewhere\n"
    page.write_text(f"[gone]({place}/gone), [there]({place}/there) and http://127.0.0.1:1/nobody\n", encoding="utf-8")
    assert main([str(page)]) == 1
    told = capsys.readouterr().out
    assert f"{place}/gone: HTTP 404 (page.md)" in told
    assert "http://127.0.0.1:1/nobody: " in told
    assert "1 of 3 links lead somewhere" in told


def test_the_docs_have_links_to_check() -> None:
    found = addresses(PAGES)
    assert len(found) > 20
    assert all("](" not in address and " " not in address for address in found)


def test_links_are_addresses_that_a_browser_would_ask_for() -> None:
    """Without a network their form is all that can be held: a host that has a name, nothing left over of the sentence around."""
    for address in addresses(PAGES):
        parts = urlsplit(address)
        assert parts.scheme == "https", address
        assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,}", parts.netloc), address
        assert re.fullmatch(r"[A-Za-z0-9._~/-]*", parts.path), address
        assert "//" not in parts.path, address
        assert not parts.path.endswith((".", ",", "-", "_")), address
        if parts.netloc == "github.com":
            owner_and_name, _, rest = parts.path.strip("/").partition("/")[2].partition("/")
            assert owner_and_name, address
            kind, _, place = rest.partition("/")
            assert not rest or (kind in ("blob", "tree", "issues", "pull", "releases", "wiki") and place), address
        if parts.netloc == "arxiv.org":
            assert re.fullmatch(r"/(abs|pdf)/\d{4}\.\d{4,5}(v\d+)?", parts.path), address
