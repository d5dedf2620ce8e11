"""Weights that are rounded once a step, not for every microbatch."""

from __future__ import annotations

from meshcast import predict
from meshcast.jobs.program.run import Run
from meshcast.options.options import Options
from tests.lower.programs import FOUR_LAYERS, planned


def test_weights_are_rounded_once_a_step() -> None:
    """Products stay as they are, and what rounds weights for every microbatch goes."""
    plan = "pp=2,mbs=1,precision=fp8"
    options = Options(on="dgx-h100", plan=plan, settings=FOUR_LAYERS, layers="separate")
    every, once = (predict("llama3-tiny", options.having(overlap=overlap)) for overlap in ("", "cached-weights"))
    assert once.kernels < every.kernels
    assert once.flops == every.flops
    whole = Options(
        on="h100-sxm", plan="mbs=16,precision=fp8", settings=FOUR_LAYERS
    )  # one microbatch, all of it in one program
    one, same = (predict("llama3-tiny", whole.having(overlap=overlap)) for overlap in ("", "cached-weights"))
    assert one.kernels == same.kernels


def test_gathered_weights_travel_rounded() -> None:
    """What is gathered for every microbatch is stored in 8 bits, where nobody reads it in 16."""
    plan = "fsdp=4,mbs=2,precision=fp8"
    every, once = (planned(plan, overlap, "separate") for overlap in ("", "cached-weights"))

    def gathered(run: Run) -> float:
        found = [(kernel.collective, times) for kernel, times in run.lowered.schedule.walk()]
        return sum(c.payload_bytes * times for c, times in found if c is not None and c.kind == "all_gather")

    # The projections of queries, keys and values are rounded side by side into one array, and stay as they are.
    assert 0.5 < gathered(once) / gathered(every) < 0.85
