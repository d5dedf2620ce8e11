"""The page itself, in the system's Chromium: clicked through, numbers read back and held against those of the server's answers.

Any error on the browser's console, and any request that fails, fails the test. Requests that the page itself gives up because its
question has changed are none of those.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshcast.base import UsageError, child_environment, python_command
from meshcast.cli.app import app
from meshcast.report import SECTION_SCRIPTS
from meshcast.serve import ServeOptions, serve_page
from tests.accessibility import barriers
from tests.perfetto_page import PERFETTO

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_MS = 90_000
TRAINED = {
    "kind": "model", "model": "llama3-tiny", "on": ["dgx-h100"], "devices": 4, "plan": "fsdp=4", "settings": {"batch": "8"},
}  # fmt: skip
# A forward pass, which is captured in a fifth of the time: the page tries other plans of it by itself.
TINY = {**TRAINED, "settings": {"batch": "8", "mode": "forward"}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own, as a user starts it."""
    runs = tmp_path_factory.mktemp("runs")
    command = python_command("meshcast", "serve", "--port", "0", "--workers", "1", "--runs", str(runs))
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=child_environment())
    assert process.stderr is not None
    said = process.stderr.readline()
    found = re.search(r"http://localhost:\d+/", said)
    assert found, said
    yield found[0]
    process.terminate()
    process.wait(timeout=20)
    process.stderr.close()


@pytest.fixture
def tab(browser: Any, address: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda asked: problems.append(asked.url) if asked.failure != "net::ERR_ABORTED" else None)
    refused: list[Any] = []
    page.on("response", lambda got: refused.append(got) if got.status >= 400 else None)
    page.goto(_link(address, TINY))
    page.wait_for_selector("html[data-ready]")
    yield page
    problems += [f"{got.status} {got.url} {got.request.post_data}: {got.text()}" for got in refused]
    context.close()
    assert problems == []


def _link(address: str, *configs: dict[str, Any]) -> str:
    import base64

    packed = base64.urlsafe_b64encode(json.dumps({"v": 1, "a": 0, "c": configs}).encode()).decode().rstrip("=")
    return f"{address}#view=predict&s={packed}"


def _settled(tab: Any, cards: int = 1) -> None:
    """Waits until every card has all of its sections, what would help among them."""
    tab.wait_for_function(
        "(n) => document.querySelectorAll('[data-card][data-whole]').length === n && !document.querySelector('.waits')",
        arg=cards,
    )


# By the terms of the report's glossary: cards have its sections.
def _read(tab: Any, term: str, card: int = 0) -> float:
    return float(tab.locator(f'[data-card="{card}"] #summary .q[data-term="{term}"]').first.get_attribute("data-value"))


def _asked(*words: str) -> dict[str, Any]:
    """What the command says, run in this process: all of it is loaded here already."""
    told = CliRunner().invoke(app, ["predict", *words, "--lowering", "modelled", "--levers", "none", "--json"])
    assert told.exit_code == 0, told.output
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def test_numbers_on_the_page_are_those_of_the_command(tab: Any) -> None:
    _settled(tab)
    told = _asked("llama3-tiny", "--on", "dgx-h100", "--plan", "fsdp=4", "--set", "batch=8", "--set", "mode=forward")
    assert _read(tab, "step_time") == told["step_time_s"]
    assert _read(tab, "peak_memory") == told["memory_bytes"]["peak"]
    assert _read(tab, "mfu") == told["mfu"]
    assert _read(tab, "throughput") == told["throughput"]["per_s"]
    parts = tab.locator("#summary .lead .piece").evaluate_all("all => all.map(each => Number(each.dataset.value))")
    assert sum(parts) == pytest.approx(told["step_time_s"])


def test_cards_have_the_sections_of_a_report(tab: Any) -> None:
    """Each is drawn by the report's own scripts once it is chosen, and words are explained under the pointer."""
    _settled(tab)
    names = tab.locator("[data-section]").evaluate_all("all => all.map(each => each.dataset.section)")
    assert names == ["breakdown", "timeline", "roofline", "memory", "communication", "power", "provenance"]
    for name in ("roofline", "memory", "power"):
        tab.click(f"[data-section={name}]")
        tab.wait_for_selector(f'#{name} [data-plot="{name}"] canvas')
    tab.click("[data-section=timeline]")
    tab.wait_for_selector('#timeline [data-plot="timeline"] canvas')
    assert tab.locator("#memory").is_hidden()
    tab.hover('#summary .figure [data-term="mfu"]')
    assert "Model FLOPs utilisation" in tab.inner_text("#tip")


def test_the_page_loads_what_sections_need() -> None:
    page = (ROOT / "src" / "meshcast" / "serve" / "static" / "index.html").read_text()
    loaded = re.findall(r'<script defer src="report/([^"]+)"', page)
    assert loaded == ["vendor/echarts.min.js", *SECTION_SCRIPTS]


def test_controls_compare_and_share(tab: Any, browser: Any) -> None:
    """A second configuration, its plan changed by what is offered; the address alone opens the same in another tab."""
    _settled(tab)
    first = _read(tab, "step_time")
    tab.click(".add")
    tab.wait_for_selector("#plan-tp")  # what the server offers for the second one
    assert tab.eval_on_selector_all("#plan-tp option", "all => all.map(each => each.value)") == ["1", "2", "4"]
    tab.select_option("#plan-tp", "2")
    tab.wait_for_function("() => document.getElementById('plan-text')?.textContent === 'fsdp=2,tp=2'")
    tab.wait_for_selector('[data-card="1"] header .sub:has-text("fsdp=2,tp=2")')
    _settled(tab, cards=2)
    assert _read(tab, "step_time", card=0) == first
    second = _read(tab, "step_time", card=1)
    assert "the time of A" in tab.text_content('[data-card="1"] .ratio')
    tab.select_option("#also-on", "h200")
    tab.wait_for_selector('[data-card="1"] tr[data-on="h200"]')
    other = browser.new_page()
    other.goto(tab.url)
    other.wait_for_selector('[data-card="1"] #headline', timeout=PATIENCE_MS)
    assert _read(other, "step_time", card=1) == second
    other.close()


def test_four_configurations_stand_side_by_side(tab: Any, address: str) -> None:
    """Each card has its own command's number, and the four are all there may be."""
    asked = [("dgx-h100", 4, "fsdp=4"), ("dgx-h100", 4, "fsdp=2,tp=2"), ("h200", 2, "tp=2"), ("dgx-b200", 2, "fsdp=2")]
    tab.goto(_link(address, *({**TINY, "on": [on], "devices": count, "plan": plan} for on, count, plan in asked)))
    _settled(tab, cards=4)
    for card, (on, _, plan) in enumerate(asked):
        told = _asked("llama3-tiny", "--on", on, "--plan", plan, "--set", "batch=8", "--set", "mode=forward")
        assert _read(tab, "step_time", card=card) == told["step_time_s"]
    assert not tab.locator(".add:enabled").count()


def test_a_pasted_configuration_is_predicted(tab: Any, tmp_path: Path) -> None:
    _settled(tab)
    config = {
        "model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 512,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    tab.click("#kind-config")
    tab.fill("#config", json.dumps(config))
    tab.locator("#config").blur()
    tab.wait_for_selector('[data-card="0"] h2:has-text("config.json")')
    _settled(tab)
    words = ("--on", "dgx-h100", "--plan", "fsdp=4", "--set", "batch=8", "--set", "mode=forward")
    assert _read(tab, "step_time") == _asked(str(tmp_path / "config.json"), *words)["step_time_s"]


def test_a_link_opens_in_the_page_that_is_open_and_may_call_things_otherwise(tab: Any, address: str) -> None:
    """A link differs from the page's own address behind the `#` alone, for which browsers load nothing."""
    _settled(tab)
    tab.goto(_link(address, {**TINY, "model": "Llama3 Tiny", "on": ["DGX H100", "h200"], "devices": 2, "plan": "tp=2"}))
    tab.wait_for_selector('[data-card="0"] header .sub:has-text("tp=2")')
    _settled(tab)
    assert (tab.input_value("#model"), tab.input_value("#on")) == ("llama3-tiny", "dgx-h100")
    # Other hardware stands above the sections, with its time against the first.
    rows = tab.locator('[data-card="0"] .hardware tr[data-on]').evaluate_all("all => all.map(each => each.dataset.on)")
    assert rows == ["dgx-h100", "h200"]
    above, headline = (tab.locator(each).bounding_box() for each in ('[data-card="0"] .hardware', "#headline"))
    assert above["y"] < headline["y"]


def test_a_program_is_dropped_and_a_wrong_one_is_told(tab: Any, tmp_path: Path) -> None:
    _settled(tab)
    tab.click("#kind-program")
    tab.set_input_files("#program", str(ROOT / "tests" / "fixtures" / "sharded.mlir"))
    tab.wait_for_selector(".drop b:has-text('sharded')")
    tab.wait_for_function("() => document.querySelector('[data-card=\"0\"] h2')?.textContent === 'sharded'")
    _settled(tab)
    assert _read(tab, "step_time") > 0
    large = tmp_path / "large.mlir"
    large.write_bytes(b"x" * (32 * 2**20 + 1))
    tab.set_input_files("#program", str(large))
    tab.wait_for_selector("#notice[data-kind=error]:has-text('32 MiB')")


def test_views_fit_a_phone_in_dark(tab: Any) -> None:
    """Nothing is wider than the screen, and every control has a name."""
    tab.emulate_media(color_scheme="dark")
    for width in (390, 1440):
        tab.set_viewport_size({"width": width, "height": 844})
        for view in ("predict", "search", "runs"):
            tab.click(f"[data-view={view}]")
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} at {width}"
    unnamed = "all => all.filter(e => !e.labels?.length && !e.getAttribute('aria-label')).map(e => e.id)"
    tab.click("[data-view=predict]")
    assert tab.eval_on_selector_all("select, textarea, input:not([type=file])", unnamed) == []
    assert tab.evaluate("getComputedStyle(document.body.parentElement).backgroundColor") == "rgb(16, 20, 27)"


def test_the_page_has_no_serious_barrier(tab: Any) -> None:
    _settled(tab)
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        for view in ("predict", "search", "runs"):
            tab.click(f"[data-view={view}]")
            for width in (1440, 390):  # a phone has links of its own
                tab.set_viewport_size({"width": width, "height": 844})
                assert barriers(tab) == [], f"{view}, {scheme}, {width}"


def test_a_search_is_watched_stopped_and_opened(tab: Any, address: str) -> None:
    """Plans are searched for training steps."""
    tab.goto("about:blank")
    tab.goto(_link(address, TRAINED))
    tab.click("[data-view=search]")
    tab.fill("#search-devices", "2")
    tab.fill("#search-fixed", "fsdp=1,tp=1,pp=1,mbs=1,zero=0")
    tab.click("#search-start")
    tab.wait_for_selector(".plot[data-points] canvas")
    tab.evaluate("() => document.getElementById('search-stop')?.click()")  # it may be done by now, and the button gone
    tab.wait_for_selector(".state.stopped, .state.done")
    point = float(tab.get_attribute("tr[data-point] [data-value]", "data-value"))
    tab.click("tr[data-point] button")
    tab.wait_for_function(
        "(t) => Math.abs(Number(document.querySelector('.report-sections')?.shadowRoot.querySelector('#headline .q')"
        "?.dataset.value) / t - 1) < 1e-9",
        arg=point,
    )
    tab.click("[data-view=runs]")
    tab.wait_for_selector("tr[data-run] button")


def test_a_report_of_the_page_opens_and_hands_its_trace_over(tab: Any) -> None:
    _settled(tab)
    step = _read(tab, "step_time")
    tab.click('[data-card="0"] .report')
    tab.wait_for_selector('[data-card="0"] a[href^="/reports/"]')
    with tab.expect_popup() as opened:
        tab.click('[data-card="0"] a[href^="/reports/"]')
    report = opened.value
    assert float(report.get_attribute("#headline .q", "data-value")) == step
    tab.context.route("https://ui.perfetto.dev/**", lambda to: to.fulfill(body=PERFETTO, content_type="text/html"))
    with report.expect_popup() as window:
        report.click("[data-perfetto]")
    window.value.wait_for_function(
        "() => document.title.includes('.pftrace.gz') || document.title.includes('.json.gz')"
    )


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = python_command("meshcast", "serve", "--port", str(taken.getsockname()[1]))
        told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert told.returncode == 2
    assert "another program listens there already" in told.stderr
    assert "Errno" not in told.stderr


def test_a_file_is_no_folder_of_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    for runs in (tmp_path / "runs", tmp_path / "runs" / "below"):
        with pytest.raises(UsageError, match="runs is no folder"):
            serve_page(ServeOptions(port=0, runs=runs))
