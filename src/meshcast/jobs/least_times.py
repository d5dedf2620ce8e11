"""What a layer's turn takes at least in any program that has the layer, told from one program that has it.

The same layer is captured into many programs: a part of a pipeline, a step whose weights are spread over `fsdp`, one that
adds its gradients up over replicas. Fusions, gathers of weights and sums of gradients differ between them. What does not
differ, as long as `tp`, `cp`, `ep` and the microbatch are the same, is the model's own arithmetic: the sides of its matrix
products (with their operands one way round or the other, which takes as long), the collectives that exchange activations
between them, and which of them need each other's results. Spreading weights and adding replicas split the batch and the storage
of weights, and no product. So, with p_i the least seconds of product i (`estimate.least`) and c_j those alone of a collective j
between two products,

    turn >= max(sum of p_i, longest path of data through p_i and c_j)

The sum: products run one after the other on the one compute stream of a device, each for no less than p_i at the full clock,
which no power cap raises. The path: a step starts when what it waits for has ended, whatever the order of a stream;
contention and other work only add to that. A collective is counted where a product of the turn leads to it and it leads to
another: what gathers weights has none before it, what adds gradients up none behind it, and both differ between programs.
Everything else of the turn (elementwise work, launches) is taken to cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from meshcast.estimate import is_product, least_seconds
from meshcast.lower import CostKey, Kernel, LoopStep, Schedule, Step, dependencies

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run


def least_turn(run: Run, trips: int) -> float:
    """Seconds, at least, of a turn of each of a run's outermost loops of so many turns, together."""
    if run.options.lowering.rewrites.any:  # which cut products into pieces, and move them between turns
        return 0.0
    bodies = [step.body for step in run.lowered.schedule.steps if isinstance(step, LoopStep) and step.trips == trips]
    products = [kernel for body in bodies for kernel, _ in body.walk() if is_product(kernel)]
    named = run.options.estimate.simulator is not None
    least = least_seconds(products, run.device, run.estimators, first_named=named)
    return sum(_least(run, body, least) for body in bodies)


def _least(run: Run, block: Schedule, least: Mapping[CostKey, float]) -> float:
    """A block's seconds: its products one after the other, or the longest way of data through it from product to product."""
    computing = longest = 0.0
    ends: list[float] = []  # of the longest way to each step; 0 where no product is on it
    waits = run.options.scheduling.scheduler != "ideal"  # where nothing waits for anything
    for step, before in zip(block.steps, dependencies(block.steps), strict=True):
        end = max((ends[earlier] for earlier in before), default=0.0)
        if isinstance(step, Kernel) and step.collective is not None:
            end += run.network.seconds(step) if end else 0.0
        elif seconds := _computing_seconds(run, step, least):
            computing += seconds
            end += seconds
            longest = max(longest, end)
        ends.append(end)
    return max(computing, longest if waits else 0.0)


def _computing_seconds(run: Run, step: Step, least: Mapping[CostKey, float]) -> float:
    """Of a kernel that is no collective, or of a loop; of branches nothing is claimed."""
    if isinstance(step, Kernel):
        return least.get(step.cost_key, 0.0)
    return step.trips * _least(run, step.body, least) if isinstance(step, LoopStep) else 0.0
