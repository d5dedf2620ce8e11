"""The document: everything inside, nothing fetched, and what users named stays text."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from meshcast.base import UnsupportedError
from meshcast.report import GLOSSARY, ReportData, Subject, data_block, prediction_data, report_page, section_html, shown
from meshcast.report.assets import STATIC
from meshcast.report.page import SCRIPTS, asset
from tests.report.conftest import HOSTILE

MOST_BYTES = 8_000_000


class Elements(HTMLParser):
    """Tags with their attributes, and the texts of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._inside = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def test_names_stay_text(single_data: ReportData) -> None:
    text = report_page(single_data)
    found = Elements(text)
    assert len(found.scripts) == 1 + len(SCRIPTS)
    assert "alert(1)" not in "".join(found.scripts[1:])
    assert not [tag for tag, given in found.tags if tag == "img" or any(name.startswith("on") for name in given)]
    assert json.loads(found.scripts[0]) == json.loads(json.dumps(single_data))
    assert HOSTILE not in text
    assert HOSTILE in json.dumps(single_data)


def test_the_data_block_cannot_be_ended() -> None:
    block = data_block({"a": "</script><!--<script>\u2028 & ]]>"})
    assert not re.search(r"[<>&\u2028]", block)
    assert json.loads(block) == {"a": "</script><!--<script>\u2028 & ]]>"}


def test_nothing_is_fetched_and_own_scripts_alone_run(single_data: ReportData) -> None:
    found = Elements(report_page(single_data))
    (policy,) = (given["content"] for tag, given in found.tags if given.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for script in found.scripts[1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    fetched = [given for _, given in found.tags if {"src", "href"} & given.keys()]
    assert all((given.get("href") or "").startswith(("#", "data:")) and "src" not in given for given in fetched)


def test_a_server_has_links_instead(single_data: ReportData) -> None:
    found = Elements(report_page(single_data, assets="/static/"))
    linked = [given["src"] for tag, given in found.tags if tag == "script" and "src" in given]
    assert linked == [f"/static/{name}" for name in SCRIPTS]
    part = section_html("summary", single_data)
    assert part.lstrip().startswith('<section id="summary"')
    assert "<html" not in part


def test_the_vendored_library_is_the_one_that_is_told() -> None:
    told = (STATIC / "vendor" / "README.md").read_text(encoding="utf-8")
    content = (STATIC / "vendor" / "echarts.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() in told
    assert f"{len(content):,}" in told
    assert (STATIC / "vendor" / "echarts.LICENSE").is_file()
    assert "</script" not in "".join(map(asset, SCRIPTS)).lower()


def test_a_file_can_be_mailed(sharded: Subject, staged: Subject) -> None:
    for subject in (sharded, staged):
        data = prediction_data(subject)
        assert len(report_page(data).encode()) < MOST_BYTES
        (trace,) = data["traces"]
        assert trace["data"], trace["note"]
        assert gzip.decompress(base64.b64decode(trace["data"]))


def test_a_trace_without_room_is_left_out_and_told(sharded: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshcast.report.embedded.MOST_BYTES", 100)
    data = prediction_data(sharded)
    (trace,) = data["traces"]
    assert not trace["data"]
    assert "meshcast trace --format perfetto writes it" in report_page(data)


def test_without_perfettos_package_the_trace_is_kinetos(single: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UnsupportedError("not installed")

    monkeypatch.setattr("meshcast.report.embedded.load_builder", missing)
    (trace,) = prediction_data(single)["traces"]
    assert trace["file"].endswith(".json.gz")
    assert json.loads(gzip.decompress(base64.b64decode(trace["data"])))["traceEvents"]


def test_the_same_job_gives_the_same_bytes(sharded: Subject) -> None:
    assert report_page(prediction_data(sharded)) == report_page(prediction_data(sharded))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.9301, "s", "930 ms"),
        (0.0, "s", "0 s"),
        (80 * 2**30, "B", "80 GiB"),
        (0.4581, "share", "45.8 %"),
        (1e-5, "share", "<0.1 %"),
        (563680.1, "tokens/s", "564,000 tokens/s"),
        (700.2, "W", "700 W"),
        (1.5, "ratio", "1.5×"),
        (4306, "count", "4,306"),
        (None, "s", "–"),
        (True, "", "yes"),
        ("text", "s", "text"),
    ],
)
def test_numbers_have_their_units(value: Any, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_the_glossary_says_whole_sentences() -> None:
    for word, text in GLOSSARY.items():
        assert re.fullmatch(r"[a-z_]+", word)
        assert text[0].isupper()
        assert text.endswith(".")
