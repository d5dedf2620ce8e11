"""What a plan computes besides the model's own products: again in the backward pass, and alike on several devices.

Everything is counted in the program of one device under the same recomputation, none of it in the partitioned programs, so
that these can be held against it:

    products of all devices = model + recomputed + repeated,   repeated = (tp - 1) * products of routing

Tensor parallelism splits experts and not the choice of them; every other product is split over the devices or over their
batches. Padding of a vocabulary that `tp` does not divide is not among it: it is a larger model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshcast.base import Rows, format_flops, shown
from meshcast.jobs.planned.settings import microbatches_of
from meshcast.jobs.planned.target import plan_target
from meshcast.partition import partition
from meshcast.programs import Program
from meshcast.workload import read_workload
from meshcast.zoo import ALIKE_SCOPE, Plan


@shown
@dataclass(frozen=True, slots=True, kw_only=True)
class Redundancy:
    """Matrix FLOPs of a step, over all devices.

    Attributes:
        model_flops: What the model needs.
        recomputed_flops: What the backward pass computes again.
        repeated_flops: What several devices compute alike, beyond the first of them.
    """

    model_flops: float
    recomputed_flops: float
    repeated_flops: float

    @property
    def total_flops(self) -> float:
        """All of it."""
        return self.model_flops + self.recomputed_flops + self.repeated_flops

    @property
    def share(self) -> float:
        """What is computed besides the model, as a share of the model."""
        return self.total_flops / self.model_flops - 1

    def summary_rows(self) -> Rows:
        """The parts."""
        return [
            ("model", format_flops(self.model_flops)),
            ("recomputed", format_flops(self.recomputed_flops)),
            ("repeated", format_flops(self.repeated_flops)),
            ("besides the model", f"{100 * self.share:.2f} %"),
        ]


def redundancy(
    target: Any, plan: Plan, *, settings: Mapping[str, str] | None = None, platform: str = "cuda"
) -> Redundancy:
    """What a plan computes besides the model's own products.

    Args:
        target: A model of the zoo, or a Hugging Face configuration.
        plan: How it is shared out.
        settings: What `--set` says; `batch` is the global batch.
        platform: What to lower for.

    Raises:
        UsageError: The target is no model, or does not train, or its batch is no number.
        InfeasibleError: The batch does not make whole microbatches.
    """
    asked = dict(settings or {})
    whole = plan.mbs * plan.batch_shards * microbatches_of(plan, asked)
    alone = Plan(
        mbs=whole,
        remat=plan.remat,
        precision=plan.precision,
        attention="flash" if plan.attending.startswith("flash") else None,
    )
    program = plan_target(target, alone, settings=asked | {"batch": str(whole)}, platform=platform)
    assert isinstance(program, Program)
    workload = read_workload(partition(program))
    total, recomputed = sum(workload.totals.matrix_flops.values()), workload.totals.recomputed_flops
    routing = sum(count * op.cost.matrix_flops for op, count in workload.walk() if ALIKE_SCOPE in op.location)
    return Redundancy(
        model_flops=total - recomputed,
        recomputed_flops=recomputed,
        repeated_flops=(plan.tp - 1) * routing,
    )
