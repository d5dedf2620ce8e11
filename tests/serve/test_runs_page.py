"""Runs that lie in the runs folder, opened in a fresh window of the system's Chromium: their front, their points, their list."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshcast.base import child_environment, python_command
from meshcast.evidence.comparison import compare
from meshcast.evidence.comparison.folder import RunFolder
from meshcast.explore import Outcome, Point
from meshcast.report import write_report

PATIENCE_MS = 90_000
CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 512,
}  # fmt: skip
SPACE = """schema = "meshcast.space/1"
model = {model}
on = "dgx-h100"
devices = [2, 4]
"""


OBJECTIVES = ("time", "memory")
PLANS = (("fsdp=2", 0.5), ("dp=2", 0.25))
MANY = tuple((f"dp={n},fsdp=2,tp=2,sp=1,mbs={n},zero=1", 0.001 * n) for n in range(1, 40))


def _run(
    runs: Path,
    name: str,
    target: str,
    plans: tuple[tuple[str, float], ...] = PLANS,
    objectives: tuple[str, ...] = OBJECTIVES,
    **asked: Any,
) -> None:
    """A run folder, as `meshcast explore` leaves it."""
    folder = runs / name
    folder.mkdir()
    (folder / "environment.json").write_text("{}")
    (folder / "space.toml").write_text(SPACE.format(model=json.dumps(target)))
    lines = []
    for number, (plan, step) in enumerate(plans):
        given = {"on": "dgx-h100", "devices": 2, "plan": plan, "settings": {"batch": "4"}, **asked}
        outcome = Outcome(
            status="answered",
            step_time_s=step,
            devices=2,
            memory_bytes=2 - number,
            capacity_bytes=4,
            fidelity="roofline",
        )
        point = Point(number=number, target=target, asked=given)
        lines.append(json.dumps({"point": point.to_json(), "outcome": outcome.to_json()}))
    (folder / "points.jsonl").write_text("\n".join(lines) + "\n")
    best = [{"number": 1, "plan": "dp=2", "on": "dgx-h100", "devices": 2, "step_time_s": 0.25, "mfu": 0.1}]
    summary = {
        "objectives": objectives,
        "interrupted": False,
        "left_out": 0,
        "space": 2,
        "evaluated": 2,
        "best": best,
    }
    (folder / "summary.json").write_text(json.dumps(summary))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    runs = tmp_path_factory.mktemp("runs")
    other: dict[str, Any] = {
        "fidelity": "roofline",
        "network": "flow",
        "clocks": "burst",
        "stack": "xla",
        "lowering": "auto",
    }
    _run(runs, "explored", "llama3-tiny", **other)
    tuned: dict[str, Any] = {"hardware.hbm_bandwidth": 2e12}
    _run(runs, "tuned", "llama3-tiny", **tuned)
    _run(runs, "priced", "llama3-tiny", objectives=("cost", "time"), fidelity="roofline")
    _run(runs, "20261117-config", str(runs / "20261117-config.config.json"), fidelity="roofline")
    (runs / "20261117-config.config.json").write_text(json.dumps(CONFIG))
    compared = compare("llama3-tiny", on=["h200", "a100"], fidelities="roofline", settings={"batch": "2", "seq": "64"})
    RunFolder.opened(runs / "compared").write(compared)
    command = python_command("meshcast", "serve", "--port", "0", "--workers", "1", "--runs", str(runs))
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=child_environment())
    assert process.stderr is not None
    found = re.search(r"http://localhost:\d+/", process.stderr.readline())
    assert found
    yield found[0]
    process.terminate()
    process.wait(timeout=20)
    process.stderr.close()


@pytest.fixture
def window(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    context.close()
    assert problems == []


def _asked_by_a_click(window: Any) -> dict[str, Any]:
    """What the server is asked about the point that is opened first."""
    window.wait_for_selector("html[data-ready]")
    with window.expect_request(lambda sent: "/api/choices" in sent.url and "llama3-8b" not in sent.post_data) as asked:
        window.click("tr[data-point] button")
    found: dict[str, Any] = json.loads(asked.value.post_data)
    return found


def test_the_front_of_a_finished_run_is_drawn_in_a_fresh_window(window: Any, address: str) -> None:
    window.goto(f"{address}#view=search&run=explored")
    window.wait_for_selector(".plot[data-points='2'] canvas", timeout=20_000)
    window.goto("about:blank")
    window.goto(f"{address}#view=runs")
    window.click("tr[data-run=explored] button")
    window.wait_for_selector(".plot[data-points='2'] canvas", timeout=20_000)


def test_a_point_opens_with_every_option_of_its_run(window: Any, address: str) -> None:
    window.goto(f"{address}#view=search&run=explored")
    asked = _asked_by_a_click(window)
    assert (asked["model"], asked["plan"], asked["devices"], asked["settings"]) == (
        "llama3-tiny", "dp=2", 2, {"batch": "4"},
    )  # fmt: skip
    assert {name: asked[name] for name in ("fidelity", "network", "clocks", "stack", "lowering")} == {
        "fidelity": "roofline", "network": "flow", "clocks": "burst", "stack": "xla", "lowering": "auto",
    }  # fmt: skip


def test_what_the_page_has_no_control_for_is_told(window: Any, address: str) -> None:
    window.goto(f"{address}#view=search&run=tuned")
    _asked_by_a_click(window)
    window.wait_for_selector("#notice[data-kind=error]:has-text('hardware.hbm_bandwidth')")


def test_a_point_over_a_pasted_config_opens_with_the_config_of_its_run(window: Any, address: str) -> None:
    window.goto(f"{address}#view=search&run=20261117-config")
    asked = _asked_by_a_click(window)
    assert json.loads(asked["config"]) == CONFIG
    assert (asked["fidelity"], asked["plan"]) == ("roofline", "dp=2")
    window.wait_for_selector("#config")
    assert json.loads(window.input_value("#config")) == CONFIG


def test_a_search_that_begins_takes_an_earlier_error_away(window: Any, address: str) -> None:
    window.goto(f"{address}#view=search")
    window.wait_for_selector("html[data-ready]")
    window.fill("#search-fixed", "tp=nought")
    window.click("#search-start")
    window.wait_for_selector("#notice[data-kind=error]")
    begun = {"name": "explored", "state": "running", "seconds": 0}
    window.route("**/api/searches", lambda to: to.fulfill(status=201, json=begun))
    window.fill("#search-fixed", "")
    window.click("#search-start")
    window.wait_for_selector("#notice", state="hidden", timeout=20_000)


def test_runs_are_called_the_same_and_without_places(window: Any, address: str) -> None:
    window.goto(f"{address}#view=runs")
    window.wait_for_selector("tr[data-run]")
    titles = {name: window.text_content(f"tr[data-run='{name}'] .text") for name in ("explored", "20261117-config")}
    assert titles == {
        "explored": "llama3-tiny on 2 or 4 of dgx-h100", "20261117-config": "config.json on 2 or 4 of dgx-h100",
    }  # fmt: skip
    window.click("tr[data-run='20261117-config'] button")
    window.wait_for_selector(".run-head h2:has-text('config.json on 2 or 4 of dgx-h100')")


def test_a_phone_shows_every_cell_of_a_run(window: Any, address: str) -> None:
    window.set_viewport_size({"width": 390, "height": 844})
    window.goto(f"{address}#view=runs")
    window.wait_for_selector("tr[data-run]")
    cut = """all => all.filter(cell => { const box = cell.getBoundingClientRect();
        return box.left < 0 || box.right > innerWidth || cell.scrollWidth > cell.clientWidth + 1 || !box.width; })
        .map(cell => cell.dataset.label)"""
    assert window.locator("tr[data-run] td").count() == 8 * window.locator("tr[data-run]").count() >= 32
    assert window.eval_on_selector_all("tr[data-run] td", cut) == []
    sides = "all => [...new Set(all.map(cell => getComputedStyle(cell).textAlign))]"
    assert window.eval_on_selector_all("tr[data-run] td", sides) == ["left"]
    assert window.evaluate(
        "(each => each.scrollWidth <= each.clientWidth)(document.querySelector('#runs-list .scroll'))"
    )


def test_points_fit_a_phone_and_every_column_has_a_name(window: Any, address: str) -> None:
    window.set_viewport_size({"width": 390, "height": 844})
    window.goto(f"{address}#view=search&run=explored")
    window.wait_for_selector("tr[data-point]")
    assert window.eval_on_selector_all(".points th", "all => all.filter(each => !each.textContent.trim()).length") == 0
    assert window.eval_on_selector_all(".scroll", "all => all.every(each => each.scrollWidth <= each.clientWidth)")
    assert window.eval_on_selector_all("main h1", "all => all.filter(each => each.checkVisibility()).length") == 1
    # A card begins with its plan, whatever else stands in it.
    tops = """all => all.map(row => {
        const top = cell => cell.getBoundingClientRect().top, plan = row.querySelector("td.plan");
        return [...row.cells].every(cell => cell === plan || !cell.offsetHeight || top(cell) > top(plan)); })"""
    begins = window.eval_on_selector_all("tr[data-point]", tops)
    assert begins
    assert all(begins)


def test_a_comparison_opens_as_its_report(window: Any, address: str) -> None:
    window.goto(f"{address}#view=runs")
    window.click("tr[data-run=compared] button")
    window.wait_for_url("**/reports/*")
    assert "llama3-tiny" in window.text_content("body")


def test_a_view_that_is_chosen_before_the_catalogue_is_there_is_shown(window: Any, address: str) -> None:
    """Its form is made of the catalogue, and nothing may take the view's place once that has come."""
    waiting: list[Any] = []
    window.route("**/api/catalogue", lambda to: waiting.append(to))
    window.goto(f"{address}#view=predict")
    window.click("[data-view=search]")
    waiting[0].continue_()
    window.wait_for_selector("#search-start")


def test_a_search_takes_what_predict_sets(window: Any, address: str) -> None:
    config = {
        "kind": "model", "model": "llama3-tiny", "on": ["h200"], "devices": 2, "plan": "fsdp=2", "mode": "forward",
        "settings": {"batch": "8"}, "fidelity": "roofline", "network": "flow", "clocks": "burst", "stack": "xla",
    }  # fmt: skip
    packed = base64.urlsafe_b64encode(json.dumps({"v": 1, "a": 0, "c": [config]}).encode()).decode().rstrip("=")
    begun = {"name": "explored", "state": "running", "seconds": 0}
    window.route("**/api/searches", lambda to: to.fulfill(status=201, json=begun))
    window.goto(f"{address}#view=search&s={packed}")
    window.wait_for_selector("html[data-ready]")
    with window.expect_request("**/api/searches") as sent:
        window.click("#search-start")
    asked = json.loads(sent.value.post_data)
    assert asked == {
        "model": "llama3-tiny", "on": ["h200"], "devices": [2], "objectives": ["time", "memory"], "fixed": "",
        "settings": {"batch": "8", "mode": "forward"}, "fidelity": "roofline", "network": "flow", "lowering": "modelled",
        "clocks": "burst", "stack": "xla",
    }  # fmt: skip
    assert "network=flow" in window.text_content("#search-form")


def test_a_running_search_has_one_bar(window: Any, address: str) -> None:
    said = "12 of 53 kinds of layers, 3 of 753 points decided, 0 predicted, about 600 s left"
    state = {
        "name": "explored",
        "state": "running",
        "seconds": 40,
        "share": 0.07,
        "said": said,
        "found": 0,
        "points": [],
    }
    window.route("**/api/runs/explored", lambda to: to.fulfill(json={**state, "objectives": ["time"], "title": "x"}))
    window.goto(f"{address}#view=search&run=explored")
    window.wait_for_selector(".far progress")
    assert float(window.eval_on_selector(".far progress", "each => each.value")) == 0.07
    assert said in window.text_content("#search-answer")
    assert window.text_content("#search-answer").count("points decided") == 1


def test_later_questions_of_a_card_are_those_of_its_first(window: Any, address: str) -> None:
    """The form is changed while the first answer comes: its plan does not divide until the server has moved it."""
    config = {
        "kind": "model",
        "model": "llama3-tiny",
        "on": ["h200"],
        "devices": 4,
        "plan": "fsdp=4",
        "settings": {"batch": "8"},
    }
    packed = base64.urlsafe_b64encode(json.dumps({"v": 1, "a": 0, "c": [config]}).encode()).decode().rstrip("=")
    asked: list[dict[str, Any]] = []
    held: list[Any] = []

    def answer(to: Any) -> None:
        if to.request.method == "POST":
            asked.append(json.loads(to.request.post_data))
        to.continue_()

    window.route("**/api/sections*", answer)
    window.goto(f"{address}#view=predict&s={packed}")
    window.wait_for_selector("#plan-tp")
    window.wait_for_selector('[data-card="0"] #headline')
    window.route("**/api/choices*", lambda to: held.append(to))  # the server takes its time to move the plan
    window.select_option("#plan-tp", "2")
    window.wait_for_selector('[data-card="0"][data-whole]')
    assert {(each["plan"], each["devices"]) for each in asked} == {("fsdp=4", 4)}

    for each in held:
        each.continue_()
    window.unroute("**/api/choices*")
    window.wait_for_selector('[data-card="0"] header .sub:has-text("fsdp=2,tp=2")')


# What the picture of parallel coordinates has for letters, as boxes on the screen; reports draw it as SVG.
LETTERS = """() => [...document.querySelectorAll('[data-plot="parallel"] text')].map(each => {
    const box = each.getBoundingClientRect();
    return { text: each.textContent, left: box.left, right: box.right, top: box.top, bottom: box.bottom }; })"""


def _overprinted(letters: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (a["text"], b["text"])
        for number, a in enumerate(letters)
        for b in letters[number + 1 :]
        if min(a["right"], b["right"]) - max(a["left"], b["left"]) > 1
        and min(a["bottom"], b["bottom"]) - max(a["top"], b["top"]) > 4
    ]


@pytest.mark.parametrize("width", [390, 1440])
def test_parallel_coordinates_of_a_report_are_read_at_any_width(window: Any, tmp_path: Path, width: int) -> None:
    """No label lies over another or beyond the picture; plans stand beside the lines, not over them."""
    _run(tmp_path, "explored", "llama3-tiny", MANY)
    write_report(tmp_path / "explored", tmp_path / "report.html")
    window.set_viewport_size({"width": width, "height": 900})
    window.goto((tmp_path / "report.html").as_uri())
    window.locator('[data-plot="parallel"]').scroll_into_view_if_needed()
    window.wait_for_selector('[data-plot="parallel"] svg text')
    letters = window.evaluate(LETTERS)
    assert _overprinted(letters) == []
    card = window.locator('.picture:has([data-plot="parallel"]), [data-plot="parallel"]').first.bounding_box()
    assert min(each["left"] for each in letters) >= card["x"]
    assert max(each["right"] for each in letters) <= min(card["x"] + card["width"], width)
    if width == 1440:
        name = next(each for each in letters if each["text"] == "plan")
        middle = (name["left"] + name["right"]) / 2  # names stand over their axes
        assert all(each["right"] <= middle for each in letters if each["text"].startswith("dp="))


MODEL: dict[str, Any] = {
    "kind": "model", "model": "llama3-tiny", "on": ["h200"], "devices": 1, "plan": "", "settings": {"batch": "8"},
}  # fmt: skip
PROGRAM = {"id": "none", "name": "it's; $(touch x)", "devices": 1, "mesh": {}}


def _link(address: str, config: Any) -> str:
    packed = base64.urlsafe_b64encode(json.dumps({"v": 1, "a": 0, "c": [config]}).encode()).decode().rstrip("=")
    return f"{address}#view=predict&s={packed}"


@pytest.mark.parametrize(
    "wrong",
    [{"on": "h200"}, {"on": []}, {"settings": None}, {"kind": "other"}, {"program": {"name": "x"}, "kind": "program"}],
)
def test_a_link_that_nobody_made_here_opens_as_far_as_it_is_one(
    window: Any, address: str, wrong: dict[str, Any]
) -> None:
    window.goto(_link(address, {**MODEL, **wrong}))
    window.wait_for_selector("html[data-ready]", timeout=20_000)
    assert window.locator("#controls select").count() > 0
    assert window.locator("#notice[data-kind=error]:visible").count() == 0


def test_a_copied_command_has_names_as_words(window: Any, address: str) -> None:
    """Whoever made the link or the file has not written the command."""
    window.goto(f"{address}#view=runs")
    window.wait_for_selector("html[data-ready]")
    said = window.evaluate(
        "async (config) => (await import('./state.js')).command({ ...config, lowering: 'auto' }, 'h200')",
        {**MODEL, "kind": "program", "program": PROGRAM, "fidelity": "auto", "network": "alpha-beta",
         "clocks": "sustained", "stack": ""},
    )  # fmt: skip
    assert shlex.split(said) == ["meshcast", "predict", "it's; $(touch x).mlir", "--on", "h200"]


def _watched(window: Any, address: str, **state: Any) -> None:
    point = {
        "number": 0, "plan": "fsdp=2", "target": "llama3-tiny", "on": "h200", "devices": 2, "step_time_s": 0.5, "mfu": 0.4,
        "memory_share": 0.2, "energy_j": 8.0, "units_per_s": 4.0, "binds": "compute 40%",
    }  # fmt: skip
    points = [{**point, "number": number, "step_time_s": 0.5 + number / 100} for number in range(70)]
    told = {"name": "explored", "title": "x", "seconds": 40, "found": 70, "points": points, "share": 0.5, **state}
    window.route("**/api/runs/explored", lambda to: to.fulfill(json=told))
    window.route("**/api/searches/explored", lambda to: to.fulfill(json=told))
    window.goto(f"{address}#view=search&run=explored")
    window.wait_for_selector("tr[data-point]")


def test_points_are_told_with_what_is_searched_for(window: Any, address: str) -> None:
    """And every number's meaning is under the pointer."""
    _watched(window, address, state="done", objectives=["energy", "time"])
    assert window.text_content("tr[data-point='69'] [data-label='energy a unit']") == "1.68 J"
    unexplained = "all => all.filter(each => !each.title).map(each => each.textContent)"
    assert window.eval_on_selector_all(".points .number", unexplained) == []
    assert "the 60 best of 70" in window.text_content("#search-answer")


def test_a_search_that_is_asked_to_end_says_so(window: Any, address: str) -> None:
    """It ends once what is under way is done, which may take seconds."""
    _watched(window, address, state="running", objectives=["time"])
    window.click("#search-stop")
    window.wait_for_selector("#search-stop:disabled:has-text('Stopping')", timeout=20_000)


def test_a_front_has_two_measures_whatever_was_searched_for(window: Any, address: str) -> None:
    """What a run costs is known of a report alone: step times were drawn over step times."""
    window.goto(f"{address}#view=search&run=priced")
    window.wait_for_selector("tr[data-point]")
    option = "e => { const o = echarts.getInstanceByDom(e).getOption(); return [o.xAxis[0].name, o.yAxis[0].name]; }"
    assert window.locator("[_echarts_instance_]").evaluate(option) == ["share of memory", "step time"]
