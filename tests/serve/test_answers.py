"""What the server answers: predictions as the command makes them, what divides, uploads; and errors as the command tells them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from meshcast.jobs import predict
from meshcast.zoo import Plan
from tests.serve.conftest import SHARDED, TINY, answered
from tests.serve.mutations import mutations


def _comparable(prediction: dict[str, Any]) -> dict[str, Any]:
    """Without the seconds that it took, and the digest of a captured program, which has the lines that called it."""
    target = {name: value for name, value in prediction["target"].items() if name != "sha256"}
    return {**{name: value for name, value in prediction.items() if name != "tool"}, "target": target}


def test_a_prediction_is_that_of_the_command(page: TestClient) -> None:
    """As Python has it, from which the command prints; `test_browser.py` asks the command itself."""
    found = answered(page, "POST", "/api/predict", json={**TINY, "plan": "fsdp=2,tp=2"})
    assert found.status_code == 200
    asked: dict[str, Any] = {"on": "dgx-h100", "plan": "fsdp=2,tp=2", "settings": {"batch": "8"}}
    told = predict("llama3-tiny", **asked, lowering="modelled", levers=False).to_json()
    assert _comparable(found.json()) == _comparable(json.loads(json.dumps(told)))
    again = page.post("/api/predict?wait=0", json={**TINY, "plan": "fsdp=2,tp=2"})
    assert again.json() == found.json(), "it is kept"


def test_a_program_is_handed_in_and_predicted(page: TestClient) -> None:
    held = answered(page, "POST", "/api/programs?name=../my sharded.mlir", content=SHARDED).json()
    assert (held["name"], held["devices"], held["mesh"]) == ("my-sharded", 8, {"data": 4, "model": 2})
    found = answered(page, "POST", "/api/predict", json={"program": held["program"], "on": "h200"}).json()
    assert found["target"]["sha256"] == held["program"]
    assert found["step_time_s"] > 0
    gone = page.post("/api/predict", json={"program": "0" * 64, "on": "h200"})
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "gone")


def test_a_hugging_face_configuration_is_a_model(page: TestClient) -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 128,
    }  # fmt: skip
    asked = {"config": json.dumps(config), "on": "h200", "settings": {"batch": "2", "seq": "64"}}
    found = answered(page, "POST", "/api/choices", json=asked).json()
    assert found["parameters"] > 0
    assert "/" not in found["summary"], "no place of the server's machine is told"
    assert answered(page, "POST", "/api/predict", json=asked).json()["feasible"]
    wrong = answered(page, "POST", "/api/predict", json={**asked, "config": '{"model_type": "llama"}'})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "unreadable-input")


def test_controls_offer_what_divides_and_nothing_else(page: TestClient) -> None:
    def offered(**asked: Any) -> dict[str, Any]:
        found: dict[str, Any] = answered(page, "POST", "/api/choices", json={**TINY, **asked}).json()
        return found

    found = offered(devices=8, plan="tp=2")
    assert found["degrees"]["tp"] == [1, 2, 4], "llama3-tiny has four heads of keys"
    assert found["degrees"]["pp"] == [1, 2], "and two layers"
    assert found["degrees"]["ep"] == [1], "and no experts"
    plan = Plan.parse(found["plan"])
    assert (plan.devices, plan.tp) == (8, 2)
    assert offered(devices=3, plan="tp=2", settings={"batch": "3"})["plan"] == "fsdp=3", "the nearest that divides"
    problem = offered(devices=7)["problem"]
    assert problem["code"] == "infeasible"
    assert "56" in problem["fix"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"on": "/etc/passwd"}, "on"), ({"on": "../h200.toml"}, "on"), ({"model": "tests/x.py:f"}, "model"),
        ({"model": "os:getcwd"}, "model"), ({"plan": "tp=2;rm"}, "plan"), ({"devices": 0}, "devices"),
        ({"fidelity": "/tmp/x"}, "fidelity"), ({"profile": "/etc/passwd"}, "profile"),
        ({"settings": {"seq": "../x"}}, "settings.seq"), ({"config": "{}"}, None), ({"stack": "/tmp/stack.toml"}, "stack"),
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused_at_the_door(page: TestClient, change: dict[str, Any], where: str | None) -> None:
    found = page.post("/api/predict", json={**TINY, **change})
    assert found.status_code == 422
    assert found.json()["error"]["where"] == where
    assert found.json()["error"]["fix"]


@pytest.mark.parametrize(
    ("sent", "fix"),
    [
        ({**TINY, "modle": "x"}, "did you mean 'model'?"), ({**TINY, "devices": 0}, "give a number of 1 or more"),
        ({**TINY, "devices": "many"}, "give a number"), ({**TINY, "clocks": "fast"}, "one of 'sustained' or 'burst'"),
        ([], "send one JSON object"), ({"on": "h200"}, "send one JSON object"),
        ({**TINY, "model": "dcnv2-criteo"}, "meshcast predict dcnv2-criteo"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_to_change(page: TestClient, sent: Any, fix: str) -> None:
    found = answered(page, "POST", "/api/predict", json=sent)
    assert found.status_code == 422
    assert found.json()["error"]["fix"].startswith(fix)


def test_models_and_hardware_go_by_the_names_that_people_use(page: TestClient) -> None:
    known = answered(page, "POST", "/api/choices", json={**TINY, "devices": 4}).json()
    asked = {**TINY, "devices": 4, "model": "Llama3 Tiny", "on": "DGX H100"}
    assert answered(page, "POST", "/api/choices", json=asked).json() == known
    assert (known["name"], known["on"]) == ("llama3-tiny", "dgx-h100")
    asked["model"] = "llama3-tiny-decode"
    found = answered(page, "POST", "/api/choices", json=asked).json()
    assert (found["name"], found["mode"]) == ("llama3-tiny", "decode")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"on": "h2000"}, "usage"), ({"model": "llama9"}, "usage"), ({"stack": "nobody"}, "usage"),
        ({"plan": "stack=nobody,fsdp=2"}, "usage"),
        ({"plan": "tp=7"}, "infeasible"), ({"settings": {"nothing": "1"}}, "usage"), ({"fidelity": "best"}, "usage"),
    ],
)  # fmt: skip
def test_what_no_catalogue_has_is_an_error_of_the_tool(page: TestClient, change: dict[str, Any], code: str) -> None:
    found = answered(page, "POST", "/api/predict", json={**TINY, **change})
    assert (found.status_code, found.json()["error"]["code"]) == (422, code)


def test_files_that_lie_around_are_no_targets(
    page: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are looked up where the worker stands, in an empty folder, and only in catalogues."""
    (tmp_path / "mine").write_bytes(SHARDED)
    monkeypatch.chdir(tmp_path)
    assert answered(page, "POST", "/api/predict", json={"model": "mine", "on": "h200"}).status_code == 422


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b\x08\x00packed", b"\x00\x01export", b"HloModule x", b"\xff\xfe"])
def test_other_formats_are_refused(page: TestClient, data: bytes) -> None:
    found = answered(page, "POST", "/api/programs", content=data)
    assert (found.status_code, found.json()["error"]["code"]) == (422, "unreadable-input")


def test_damaged_modules_are_errors_of_the_tool_and_nothing_else(page: TestClient) -> None:
    """Some tens here, five hundred in `benchmarks/serve_load.py`."""
    seen: dict[int, int] = {}
    for data in mutations(SHARDED, 40):
        found = answered(page, "POST", "/api/programs", content=data)
        seen[found.status_code] = seen.get(found.status_code, 0) + 1
        if found.status_code == 200:
            asked = {"program": found.json()["program"], "on": "h200"}
            found = answered(page, "POST", "/api/predict", json=asked)
        assert found.status_code in (200, 422), found.text
        assert found.status_code == 200 or all(found.json()["error"][name] for name in ("code", "message", "fix"))
    assert seen[422] > 10
    assert page.get("/api/catalogue").status_code == 200


def test_the_description_names_every_route(page: TestClient) -> None:
    described = page.get("/api/openapi.json").json()
    assert {"/api/predict", "/api/choices", "/api/programs", "/api/searches", "/api/runs"} <= set(described["paths"])
    assert "Configuration" in described["components"]["schemas"]
    assert page.get("/docs").status_code == 404, "its page would come from elsewhere"


def test_a_report_is_made_and_runs_apart_from_the_page(page: TestClient) -> None:
    asked = {**TINY, "plan": "fsdp=2,tp=2"}
    made = answered(page, "POST", "/api/reports", json=asked).json()
    found = page.get(made["url"])
    assert found.headers["content-type"].startswith("text/html")
    policy = found.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy, "what a program's names smuggle in could otherwise ask this server"
    assert "llama3-tiny" in found.text
    assert "meshcast report llama3-tiny --on dgx-h100 --plan fsdp=2,tp=2" in found.text
    assert page.get("/reports/none").status_code == 404
    assert page.post("/api/runs/none/report").status_code == 404
