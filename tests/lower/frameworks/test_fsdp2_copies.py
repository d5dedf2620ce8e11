"""Copies around the collectives of FSDP's units, and sums in fp32."""

from __future__ import annotations

from meshcast.jobs.program.run import Run
from tests.lower.programs import planned


def test_fsdp2_copies_and_reduces_in_fp32() -> None:
    plain, copied = (planned("fsdp=4,mbs=4", overlap) for overlap in ("", "fsdp2"))

    def moved(run: Run, kind: str) -> int:
        walked = run.lowered.schedule.walk()
        return sum(n * k.collective.payload_bytes for k, n in walked if k.collective and k.collective.kind == kind)

    layers = 0.9 * moved(copied, "reduce_scatter")  # the ends of the model are reduced as they were
    assert layers / 2 < moved(plain, "reduce_scatter") < moved(copied, "reduce_scatter")
    assert moved(plain, "all_gather") == moved(copied, "all_gather")
    gathers = sum(n for k, n in plain.lowered.schedule.walk() if k.collective and k.collective.kind == "all_gather")
    copies = sum(n for k, n in copied.lowered.schedule.walk() if k.ops[:1] == ("copy",))
    assert copies - sum(n for k, n in plain.lowered.schedule.walk() if k.ops[:1] == ("copy",)) >= gathers
