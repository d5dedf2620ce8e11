"""Errors in the words of the page."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from meshcast.serve.wording import spoken, spoken_flag
from tests.serve.conftest import TINY, answered


@pytest.mark.parametrize(
    ("said", "page"),
    [
        ("use another --fidelity, or --lowering modelled with it", "use another fidelity, or kernels modelled with it"),
        ("give --devices 16, or --set batch=64.", "give devices 16, or batch=64 under Sizes."),
        (
            "meshcast doctor --install x --on y, or use --lowering modelled",
            "meshcast doctor --install x --on y, or use kernels modelled",
        ),
        ("leave --simulator out", "leave --simulator out"),
        ("name another with --on=h200", "name another with on=h200"),
        ("--once is no flag", "--once is no flag"),
    ],
)
def test_controls_are_named_for_flags(said: str, page: str) -> None:
    assert spoken(said) == page


@pytest.mark.parametrize(
    ("flag", "page"),
    [
        ("--plan fsdp=64,precision=fp8", "plan fsdp=64,precision=fp8"),
        ("--set batch=128", "batch=128 under Sizes"),
        ("--overlap prefetch", "command line: --overlap prefetch"),
        ("--on dgx-h100+memory.bandwidth=6700GB/s", "other hardware: memory.bandwidth=6700GB/s"),
        ("--on h200", "on h200"),
        ("--plan fsdp=4 --lowering modelled", "command line: --plan fsdp=4 --lowering modelled"),
    ],
)
def test_changes_are_made_by_controls_where_there_are_some(flag: str, page: str) -> None:
    assert spoken_flag(flag) == page


def test_what_would_help_is_told_by_controls(page: TestClient) -> None:
    found = answered(page, "POST", "/api/sections?part=summary", json={**TINY, "plan": "fsdp=4", "levers": True})
    by = [row[-1] for row in found.json()["data"]["summary"]["helps"]["rows"]]
    assert by
    assert not [each for each in by if each.startswith("--")]
    assert "no control here" in found.json()["html"]["summary"]


def test_a_refusal_names_no_flag_that_has_a_control(page: TestClient) -> None:
    """A plan of four devices on eight."""
    found = answered(page, "POST", "/api/predict", json={**TINY, "plan": "fsdp=4", "devices": 8})
    assert found.status_code == 422
    assert "--" not in " ".join(str(text) for text in found.json()["error"].values())
