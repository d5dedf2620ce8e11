"""What a step without stages takes at least: its layers, what ends the model, its weights on their way, and its update.

Loops take all streams of a device (`simulate/engine.py`), so a step takes its turns, and what is outside of its loops besides.
With m microbatches and L layers

    step >= m L (forward turn + backward turn) + m (ends + gather of the output projection + sums of gradients) + casts + close

- *Turns* take what `jobs/least_times.py` says, and no less than the channel of `fsdp` carries in them: a layer's weights are
  gathered in both, and its gradients scattered in the second; so are sums over replicas where a step has one microbatch and
  no `zero`. Behind the last gather of a forward turn a product is still to come. As far as a turn has too few other kernels and
  exchanges to run beside, they run beside products, and take cores from these (`simulate/contention.py`).
- *Ends.* Of the output projection's weights no device has more than its share: the rest comes before its product, outside of
  the loops, when there is nothing else to compute.
- *Close.* Behind its loops a step sums gradients up over replicas where it has several microbatches or `zero`, gathers what
  `zero` has shared out, all over one channel, and updates: the longer of the two. Gradients of layers come out of the loops;
  those of tables of words are counted where a loop over microbatches is around them, too (`zoo/program.py`).

A loop over microbatches adds the gradients of each to their sum. The update reads and writes the optimizer's state and reads
gradients; weights that are kept in f32 are cast once. What a cache may hold is not counted, the rest at the rate that a long
stream has. Collectives take what the network model says of one that carries all of it: several smaller ones take no less.
Clock and power cap are those of `jobs/least_work.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.explore.bounds import FULL, HALF, STATE, PlanBound
from meshcast.explore.shape import ModelShape
from meshcast.hardware import Device
from meshcast.jobs import LayersCost, LeastStep, LeastWork, WeightTraffic
from meshcast.zoo import Plan

# Parameters of a layer that no product has, in widths, at most: norms and biases, which need not be spread.
ASIDE = 16


def of_step(
    plan: Plan, shape: ModelShape, batch: int, device: Device, turn: LayersCost, traffic: WeightTraffic
) -> PlanBound:
    """The bound of a plan without stages.

    Args:
        plan: The plan.
        shape: The model.
        batch: The global batch.
        device: What every rank runs on.
        turn: A layer in its loop with what it takes at least, of weights that are not spread.
        traffic: What collectives take.
    """
    forward, backward, aside, ends, stream = (
        turn.least_forward, turn.least_backward, turn.aside, turn.ends, turn.stream
    )  # fmt: skip
    if forward is None or backward is None or aside is None or ends is None or stream is None:
        return PlanBound()
    microbatches = batch // (plan.mbs * plan.batch_shards)
    turns = microbatches * (shape.layers - shape.first) / shape.period
    weight = 1 if plan.products != "plain" else HALF
    table = float(shape.vocab * shape.width)
    spread = plan.tp * plan.ep  # of what devices of `fsdp` share
    each = shape.period * max(0.0, (shape.parameters - 2 * table) / shape.layers - ASIDE * shape.width) / spread
    gathered = scattered = summed = head = 0.0
    if plan.cp == 1 and not shape.first:
        layer = _weights(plan, shape, turn, each)
        gathered = sum(traffic.seconds(plan, "all_gather", "fsdp", weight * count) for count in layer)
        scattered = sum(traffic.seconds(plan, "reduce_scatter", "fsdp", HALF * count) for count in layer)
        head = traffic.seconds(plan, "all_gather", "fsdp", weight * table / spread)
        if microbatches == 1 and not plan.zero:
            summed = traffic.seconds(plan, "all_reduce", "data", HALF * each / plan.mesh.get("fsdp", 1))
    closing = _closing(plan, shape, microbatches, traffic)
    shared = aside.times(1 / _sharing(plan))
    slowed = turn.slowed[traffic.in_network(plan, "all_gather", "fsdp", weight * each)]
    before = slowed * max(0.0, gathered - turn.others_s[0] - forward.exchanged_s)
    busy = turn.others_s[1] + shared.longest_s + backward.exchanged_s
    behind = slowed * max(0.0, gathered + scattered - busy)
    step = LeastStep(
        works=(
            (turns, forward.then(LeastWork(fixed_s=before)).beside(gathered + turn.shortest_s if gathered else 0.0)),
            (turns, backward.then(shared).then(LeastWork(fixed_s=behind)).beside(max(gathered + scattered, summed))),
            (microbatches, ends.then(LeastWork(fixed_s=head))),
            (microbatches, stream.times(_added_bytes(plan, shape, device, microbatches))),
            (1, stream.times(_updated_bytes(plan, shape, device)).beside(closing)),
            (1, stream.times(_cast_bytes(plan, shape, device))),
        )
    )
    return PlanBound(time_s=step.under(turn.limit, plan.devices))


def _weights(plan: Plan, shape: ModelShape, turn: LayersCost, each: float) -> Sequence[float]:
    """Weights of a turn that are gathered at once: of its products, as far as these are all of its weights, or all together.

    A product of T tokens with n weights has 2 T n FLOPs.
    """
    apart = [flops * plan.cp / (2 * plan.mbs * shape.seq) for flops in turn.products]
    return apart if 0.5 * each < sum(apart) <= 1.001 * each + ASIDE * shape.period * shape.width else (each,)


def _closing(plan: Plan, shape: ModelShape, microbatches: int, traffic: WeightTraffic) -> float:
    """Seconds of the channel of replicas behind the loops."""
    if plan.zero == 3 or (microbatches == 1 and not plan.zero):
        return 0.0
    table = float(shape.vocab * shape.width)
    counted = shape.parameters - (2 * table if microbatches == 1 or plan.zero == 2 else 0.0)
    count = max(0.0, counted - ASIDE * shape.width * shape.layers) / (plan.tp * plan.fsdp * plan.cp * plan.ep)
    size = count * (HALF if plan.gradients == "bf16" else FULL)
    if not plan.zero:
        return traffic.seconds(plan, "all_reduce", "data", size)
    summing = traffic.seconds(plan, "reduce_scatter", "data", size)
    return summing + traffic.seconds(plan, "all_gather", "data", HALF * count)


def _updated_bytes(plan: Plan, shape: ModelShape, device: Device) -> float:
    """Bytes that the update moves, but for what a cache may hold."""
    count = _stored(plan, shape) / (1 if plan.zero in (0, 3) else plan.dp * plan.ep * plan.cp)
    moved = count * (2 * STATE + HALF)  # weights in f32 with two moments, or two moments and a copy in f32
    return max(0.0, moved - device.cache_bytes)


def _added_bytes(plan: Plan, shape: ModelShape, device: Device, microbatches: int) -> float:
    """Bytes that are moved to add a microbatch's gradients of layers to their sum, behind the loop that they come out of."""
    if microbatches == 1:
        return 0.0
    layers = max(0.0, shape.parameters - 2.0 * shape.vocab * shape.width) / _sharing(plan)
    gradient = HALF if plan.gradients == "bf16" else FULL
    count = layers / (plan.tp * plan.ep * (plan.dp if plan.zero == 2 else 1))
    return max(0.0, count * (2 * gradient + HALF) - device.cache_bytes)


def _cast_bytes(plan: Plan, shape: ModelShape, device: Device) -> float:
    """Bytes that are moved where weights are kept in f32 and products take half of that."""
    cast = plan.in_half and plan.zero in (0, 3)
    return max(0.0, _stored(plan, shape) * (FULL + HALF) - device.cache_bytes) if cast else 0.0


def _stored(plan: Plan, shape: ModelShape) -> float:
    """Weights of a device, in equal shares over whoever may share them."""
    return shape.parameters / (plan.tp * plan.ep * _sharing(plan))


def _sharing(plan: Plan) -> int:
    """Devices that share the weights of one that computes with all of them."""
    return plan.fsdp * plan.cp * (plan.dp if plan.zero == 3 else 1)
