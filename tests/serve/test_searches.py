"""Searches of the page: run folders like those of `meshcast explore`, watched, stopped and opened again."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from meshcast.evidence.comparison import compare
from meshcast.evidence.comparison.folder import RunFolder
from meshcast.explore import Outcome, Point, read_space
from meshcast.serve.limits import ServeLimits
from meshcast.serve.messages import SearchRequest
from meshcast.serve.searches import SearchDesk, space_text
from tests.serve.conftest import answered


def test_a_request_is_a_space(tmp_path: Path) -> None:
    asked = SearchRequest(
        model="llama3-tiny", on=["h200", "dgx-h100"], devices=[2, 4], settings={"batch": "8"}, fixed="tp=2,remat=full",
        objectives=["time", "memory"], top=3,
    )  # fmt: skip
    (tmp_path / "space.toml").write_text(space_text(asked, "llama3-tiny"))
    read = read_space(tmp_path / "space.toml")
    assert {axis.name: axis.values for axis in read.space.axes} == {"on": ("h200", "dgx-h100"), "devices": (2, 4)}
    assert read.space.plans == {"tp": (2,), "remat": ("full",)}
    assert read.asked["objectives"] == ("time", "memory")
    assert read.space.asked["settings"] == {"batch": "8"}


def test_a_search_is_predicted_as_predictions_are(tmp_path: Path) -> None:
    """All that Predict's controls set; what is as usual is left to a stack, as it is there."""
    how = {"fidelity": "roofline", "network": "flow", "clocks": "burst", "stack": "xla", "lowering": "auto"}
    sizes = {"devices": [2], "settings": {"mode": "forward"}}
    asked = SearchRequest.model_validate({"model": "llama3-tiny", "on": ["h200"], **sizes, **how})
    (tmp_path / "space.toml").write_text(space_text(asked, "llama3-tiny"))
    space = read_space(tmp_path / "space.toml").space
    assert {name: space.asked[name] for name in how} == how
    assert space.asked["settings"] == {"mode": "forward"}
    usual = SearchRequest(model="llama3-tiny", on=["h200"], devices=[2], network="flow")
    (tmp_path / "space.toml").write_text(space_text(usual, "llama3-tiny"))
    asked_for = read_space(tmp_path / "space.toml").space.asked
    assert {name: asked_for[name] for name in how if name in asked_for} == {"network": "flow", "lowering": "modelled"}


def test_folders_of_comparisons_are_listed_and_open_as_reports(page: TestClient, runs: Path) -> None:
    compared = compare("llama3-tiny", on=["h200", "a100"], fidelities="roofline", settings={"batch": "2", "seq": "64"})
    folder = RunFolder.opened(runs / "compare-tiny")
    folder.write(compared)
    listed = {each["name"]: each for each in page.get("/api/runs").json()["runs"]}["compare-tiny"]
    assert (listed["kind"], listed["state"], listed["evaluated"]) == ("comparison", "done", 2)
    assert listed["title"] == "llama3-tiny on h200, a100 by roofline"
    times = {cell.ask.on: cell.step_time_s for cell in compared.cells}
    assert (listed["best"]["on"], listed["best"]["step_time_s"]) == ("h200", times["h200"])
    state = page.get("/api/runs/compare-tiny").json()
    assert (state["kind"], state["title"], state["points"]) == ("comparison", listed["title"], [])
    made = answered(page, "POST", "/api/runs/compare-tiny/report")
    assert made.status_code == 200
    assert "llama3-tiny" in page.get(made.json()["url"]).text
    (runs / "compare-tiny" / "table.json").write_text("{")
    listed = {each["name"]: each for each in page.get("/api/runs").json()["runs"]}["compare-tiny"]
    assert (listed["state"], listed["title"], listed["best"]["step_time_s"]) == ("stopped", "", None)
    shutil.rmtree(runs / "compare-tiny")


def test_a_search_is_started_and_stopped(page: TestClient, runs: Path) -> None:
    """`test_browser.py` waits for points, and opens one."""
    asked = {
        "model": "llama3-tiny",
        "on": ["dgx-h100"],
        "devices": [8, 16, 32],
        "settings": {"batch": "64"},
        "fixed": "",
    }
    begun = answered(page, "POST", "/api/searches", json=asked)
    assert begun.status_code == 201
    name = begun.json()["name"]
    assert page.get(f"/api/runs/{name}").json()["state"] == "running"
    started = time.monotonic()
    while not (runs / name / "environment.json").exists() and time.monotonic() - started < 100:
        time.sleep(0.1)
    assert name in {each["name"] for each in page.get("/api/runs").json()["runs"]}
    page.delete(f"/api/searches/{name}")
    while (state := page.get(f"/api/runs/{name}").json())["state"] == "running" and time.monotonic() - started < 100:
        time.sleep(0.1)
    assert (state["state"], state["error"]) == ("stopped", None)
    # What does the same is a command of its own, over what the folder keeps.
    again = json.loads((runs / name / "environment.json").read_text())["command"]
    assert again == ["meshcast", "explore", str(runs / name / "space.toml")]
    assert read_space(Path(again[-1])).asked["objectives"] == ("time",)


def test_points_of_a_folder_are_told_as_they_are_written(runs: Path) -> None:
    folder = runs / "explore-earlier"
    folder.mkdir()
    (folder / "environment.json").write_text("{}")
    point = Point(number=3, target="llama3-tiny", asked={"on": "h200", "plan": "fsdp=2", "settings": {"batch": "4"}})
    outcome = Outcome(status="answered", step_time_s=0.5, devices=2, memory_bytes=1, capacity_bytes=4)
    line = json.dumps({"point": point.to_json(), "outcome": outcome.to_json()})
    (folder / "points.jsonl").write_text(line + "\n" + line[:40])
    state = SearchDesk(runs, runs, ServeLimits()).state("explore-earlier")
    assert (state.state, state.found, state.summary) == ("stopped", 1, None)
    row = state.points[0]
    assert (row["plan"], row["set.batch"], row["step_time_s"], row["memory_share"]) == ("fsdp=2", "4", 0.5, 0.25)
    (folder / "summary.json").write_text('{"objectives": ["energy"], "interrupted": false}')
    state = SearchDesk(runs, runs, ServeLimits()).state("explore-earlier")
    assert (state.state, state.objectives) == ("done", ["energy"])
    shutil.rmtree(folder)


def test_names_are_those_of_folders_that_lie_there(page: TestClient, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("{}")
    (runs / "outside").symlink_to(tmp_path, target_is_directory=True)
    try:
        assert page.get("/api/runs/outside").status_code == 404
    finally:
        (runs / "outside").unlink()
    earlier = runs / "explore-mine"
    earlier.mkdir()
    (earlier / "environment.json").write_text("{}")
    (earlier / "space.toml").write_text('model = "gpt3-175b"\non = "dgx-h100"\n')
    (earlier / "points.jsonl").write_text("cut off\n")
    listed = {each["name"]: each for each in page.get("/api/runs").json()["runs"]}
    assert (listed["explore-mine"]["state"], listed["explore-mine"]["title"]) == ("stopped", "gpt3-175b on dgx-h100")
    assert page.get("/api/runs/explore-mine").json()["points"] == []
    shutil.rmtree(earlier)


def test_a_run_has_one_title_and_its_own_config(page: TestClient, runs: Path, tmp_path: Path) -> None:
    """A config is the file beside the run's folder: bounded, and no link to another."""
    desk = SearchDesk(runs, tmp_path, ServeLimits(), workers=1)
    text = json.dumps({"model_type": "llama"})
    asked = SearchRequest(config=text, on=["dgx-h100", "h200"], devices=[4, 1024], settings={"batch": "8"})
    begun = desk.start(asked)
    place = runs / f"{begun.name}.config.json"
    try:
        assert begun.title == "config.json on 4 or 1,024 of dgx-h100, h200"
        assert desk.config(begun.name) == text
    finally:
        desk.close()
    folder = runs / begun.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "environment.json").write_text("{}")
    (folder / "space.toml").write_text(space_text(asked, str(place.resolve())))
    point = Point(number=1, target=str(place.resolve()), asked={"on": "h200", "plan": "fsdp=4", "fidelity": "auto"})
    outcome = Outcome(status="answered", step_time_s=0.5, devices=4, fidelity="analytical")
    (folder / "points.jsonl").write_text(json.dumps({"point": point.to_json(), "outcome": outcome.to_json()}) + "\n")
    state = page.get(f"/api/runs/{begun.name}").json()
    assert state["title"] == begun.title
    assert {each["name"]: each["title"] for each in page.get("/api/runs").json()["runs"]}[begun.name] == begun.title
    row = state["points"][0]
    assert (row["target"], row["own_config"], row["asked"]) == ("config.json", True, {"fidelity": "auto"})
    assert page.get(f"/api/runs/{begun.name}/config").json() == {"config": text}
    place.write_text("x" * 65537)
    assert page.get(f"/api/runs/{begun.name}/config").status_code == 422
    place.unlink()
    (tmp_path / "other.json").write_text("{}")
    place.symlink_to(tmp_path / "other.json")
    assert page.get(f"/api/runs/{begun.name}/config").status_code == 404
    assert page.get("/api/runs/nothing/config").status_code == 404
    place.unlink()
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "change", [{"model": "llama9"}, {"on": ["h2000"]}, {"fixed": "stack=xla"}, {"devices": []}, {"on": ["../x"]}]
)
def test_what_cannot_be_searched_is_refused_before_anything_runs(page: TestClient, change: dict[str, object]) -> None:
    asked = {"model": "llama3-tiny", "on": ["h200"], "devices": [2], "settings": {"batch": "4"}, **change}
    found = answered(page, "POST", "/api/searches", json=asked)
    assert found.status_code == 422
    assert found.json()["error"]["message"]
