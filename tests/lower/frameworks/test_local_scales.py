"""Scales of fp8 tensors by what each device holds of them."""

from __future__ import annotations

import pytest

from meshcast.jobs.program.run import Run
from tests.lower.programs import planned


def numbers(run: Run) -> int:
    """Reductions of one number in a step."""
    found = [(kernel.collective, times) for kernel, times in run.lowered.schedule.walk()]
    return sum(times for c, times in found if c is not None and c.kind == "all_reduce" and c.payload_bytes <= 4)


def test_replicas_scale_what_they_round_by_their_own_values() -> None:
    plan = "fsdp=4,mbs=4,precision=fp8"
    agreed, own = (planned(plan, overlap) for overlap in ("", "local-scales"))
    assert numbers(own) < numbers(agreed) / 4  # the loss and the norm of the gradients stay
    assert own.workload.totals.matrix_flops == agreed.workload.totals.matrix_flops


@pytest.mark.parametrize(("overlap", "fewer"), [("replica-scales", False), ("local-scales", True)])
def test_devices_that_split_a_layer_may_agree(overlap: str, fewer: bool) -> None:
    agreed, own = (planned("tp=2,mbs=16,precision=fp8", each) for each in ("", overlap))
    assert (numbers(own) < numbers(agreed)) is fewer
