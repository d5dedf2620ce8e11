"""Errors in the words of the page."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from meshcast.serve.wording import spoken
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


def test_a_refusal_names_no_flag_that_has_a_control(page: TestClient) -> None:
    """A plan of four devices on eight."""
    found = answered(page, "POST", "/api/predict", json={**TINY, "plan": "fsdp=4", "devices": 8})
    assert found.status_code == 422
    assert "--" not in " ".join(str(text) for text in found.json()["error"].values())
