"""The type that a plan adds gradients up and reduces them in, where that is not inside of a backward pass."""

from __future__ import annotations

import pytest

import meshcast


@pytest.mark.parametrize(
    ("plan", "batch", "reductions"),
    [("dp=4,mbs=2,zero=1", 8, 1), ("dp=4,mbs=1,zero=1", 8, 1), ("dp=4,mbs=2,zero=2", 16, 2)],
)
def test_gradients_are_reduced_in_their_type(plan: str, batch: int, reductions: int) -> None:
    """A ring sends (n - 1) / n of what it reduces into shares: two more bytes for each parameter in fp32."""
    settings = {"batch": str(batch), "seq": "16", "vocab": "256"}
    sent = {
        kind: meshcast.predict(
            "gpt2-tiny", on="dgx-h100", plan=f"{plan},gradients={kind}", settings=settings, lowering="modelled"
        ).communication_bytes
        for kind in ("fp32", "bf16")
    }
    model = meshcast.zoo.zoo()["gpt2-tiny"]
    parameters = model.parameters() - model.config.dim  # one token less
    assert sent["fp32"] - sent["bf16"] == pytest.approx(reductions * 2 * parameters * 3 / 4, rel=1e-6)
