"""What a plan takes at least: seconds and bytes that no prediction of it falls below. A plan that is bounded out is not
predicted.

Four bounds, each tighter and dearer than the one before:

1. *Closed form.* One layer is counted once, on one device (`LayersCost` of one sequence). No plan makes products fewer, and
   none makes what is saved smaller than its share, so with m microbatches of mbs sequences, L layers, and F FLOPs of a layer
   and sequence

       compute >= (m + (pp - 1) / vp) mbs (L / pp) F / (tp cp rate)          rate: the peak at the highest clock

   where the term with pp is the pipeline's fill and drain (Narayanan 2021, section 2.2), which no schedule with whole
   backward passes avoids. Weights that `fsdp` spreads are gathered twice and their gradients scattered once for each
   microbatch, over links that carry at the most their nominal rate: `t >= max(compute, gathered / rate)`. Memory: weights,
   gradients and optimizer state in equal shares, and what min(m, pp) microbatches in flight save in the first stage.
2. *A turn of the loop over layers* under the plan's own sharding, at the full clock (`jobs.layer_turn`), taken from a part of two
   such turns. Parts of a pipeline have the same loop with more turns: collectives, memory traffic and the real times of kernels
   count. A step without stages is another program around the same layers: `whole_steps` has what it takes at least.
3. *The part itself*, where a pipeline has parts in the middle: its programs are those of the step (`jobs.part_cost`).
4. *The last part*, with the logits and the loss, which keep its stage busy for longer than any other: its programs, too.

None of them is a margin: each is a sum or a maximum of what the step has to do, with times that its own kernels cannot fall
below.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.explore.shape import ModelShape
from meshcast.hardware import Cluster, Device
from meshcast.jobs import LayersCost
from meshcast.zoo import Plan

# Bytes of a parameter: of weights in half precision, of Adam's moments with the fp32 copy; and of moments alone.
HALF, STATE, MOMENTS, FULL = 2, 12, 8, 4
# Of a layer's FLOPs, at least: the backward pass has two products for each of the forward pass, which it may compute again,
# and fused attention seven for two.
FORWARD_SHARE = 1 / 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBound:
    """What a plan takes at least.

    Attributes:
        time_s: Seconds of a step.
        memory_bytes: What the fullest device must hold.
    """

    time_s: float = 0.0
    memory_bytes: float = 0.0

    def raised(self, other: PlanBound) -> PlanBound:
        """The tighter of two bounds in each."""
        return PlanBound(time_s=max(self.time_s, other.time_s), memory_bytes=max(self.memory_bytes, other.memory_bytes))


def closed_form(plan: Plan, shape: ModelShape, batch: int, layer: LayersCost | None, cluster: Cluster) -> PlanBound:
    """The bound that needs nothing of the plan but its numbers.

    Args:
        plan: The plan.
        shape: The model.
        batch: The global batch.
        layer: What one layer takes of one device that has all of it, for one sequence, with the plan's recomputation and
            precision; None where that is not known.
        cluster: The hardware.
    """
    microbatches = batch // (plan.mbs * plan.batch_shards)
    held = _state_bytes(plan, shape, microbatches)
    if layer is None:
        return PlanBound(memory_bytes=held)
    split = plan.tp * plan.cp
    rate = _rate(plan, cluster.device)
    flops = min(layer.flops, shape.routed_flops) if shape.experts else layer.flops
    each = plan.mbs * flops * shape.layers / plan.parts / (split * rate)
    ends = plan.mbs * _logit_flops(shape) / (split * rate)
    forward = FORWARD_SHARE * each
    least = Passes(forward_s=forward, backward_s=each - forward)
    compute = staged_time(
        plan, microbatches, least, None, last_s=ends, uncounted=shape.first * plan.parts / shape.layers
    )
    in_flight = min(microbatches, plan.pp)
    saved = 0.0
    if plan.offload != "activations":
        saved = in_flight * plan.mbs * layer.saved_bytes * shape.layers / plan.pp / split
    gathered = _gathering_seconds(plan, shape, microbatches, cluster)
    return PlanBound(time_s=max(compute, gathered), memory_bytes=held + saved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Seconds of a part's passes."""

    forward_s: float
    backward_s: float
    weight_s: float = 0.0

    @property
    def both_s(self) -> float:
        """All of them."""
        return self.forward_s + self.backward_s + self.weight_s

    def times(self, share: float) -> Passes:
        """The same for a share of the part."""
        return Passes(
            forward_s=share * self.forward_s, backward_s=share * self.backward_s, weight_s=share * self.weight_s
        )


def of_layers(
    plan: Plan, shape: ModelShape, batch: int, device: Device, turn: LayersCost | None, part: LayersCost | None,
    last: LayersCost | None = None,
) -> PlanBound:  # fmt: skip
    """The bound of a plan by what its layers take.

    Args:
        plan: The plan.
        shape: The model.
        batch: The global batch.
        device: What every rank runs on.
        turn: A layer in its loop. None where parts have no loop.
        part: A part of as many layers as those of the plan; None where that is not known, or all parts are ends.
        last: The last part; None where that is not known.
    """
    microbatches = batch // (plan.mbs * plan.batch_shards)
    ends = plan.mbs * _logit_flops(shape) / (plan.tp * plan.cp * _rate(plan, device))
    least = middle = Passes(forward_s=0.0, backward_s=0.0)
    if turn is not None:
        least = middle = _times(turn, shape.layers / plan.parts)
    if part is not None:
        middle = _times(part, 1.0)
    time_s = staged_time(
        plan, microbatches, least, middle, last_s=ends, uncounted=shape.first * plan.parts / shape.layers,
        last=_times(last, 1.0) if last is not None else None,
    )  # fmt: skip
    known = turn if turn is not None else part
    if known is None or shape.first:
        return PlanBound(time_s=time_s)
    # By stage, of `turn`'s one layer or of `part`'s all.
    share = shape.layers / plan.pp if turn is not None else float(plan.vp)
    return PlanBound(time_s=time_s, memory_bytes=_stage_bytes(plan, known, share, microbatches))


def _times(cost: LayersCost, share: float) -> Passes:
    return Passes(forward_s=share * cost.forward_s, backward_s=share * cost.backward_s, weight_s=share * cost.weight_s)


def _stage_bytes(plan: Plan, cost: LayersCost, share: float, microbatches: int) -> float:
    """What the first stage holds at least: its layers' weights, gradients and state, and what microbatches in flight save."""
    weight, gradient = HALF if plan.in_half else FULL, HALF if plan.gradients == "bf16" else FULL
    count = cost.fixed_bytes * share / (weight + gradient)
    state = 0.0 if plan.offload == "optimizer" else (STATE if plan.in_half else MOMENTS) / _optimizer_shards(plan)
    saved = min(microbatches, plan.pp) * cost.saved_bytes * share
    return cost.fixed_bytes * share + count * state + saved


def staged_time(
    plan: Plan,
    microbatches: int,
    least: Passes,
    middle: Passes | None,
    *,
    last_s: float = 0.0,
    uncounted: float = 0.0,
    last: Passes | None = None,
) -> float:
    """Seconds of a step at least, by what the parts of its stages take.

    A stage begins when the first microbatch has come through those before it, works on all microbatches, and what it sends
    back last has to come through those before it again. That is asked of the last stage and of the one before it.

    Args:
        plan: The plan.
        microbatches: Of a step.
        least: What any part takes at least.
        middle: What a part takes that neither begins nor ends the model; None where it is not known.
        last_s: Seconds, at least, of what ends the model, for each microbatch.
        last: What the part takes that ends the model, all of it; None where it is not known.
        uncounted: Leading layers that `least` is not of, in parts: they take some time, and none is claimed.
    """
    inner = middle or least

    def part(position: int) -> Passes:
        if last is not None and position == plan.parts - 1:
            return last
        found = inner if 0 < position < plan.parts - 1 else least
        counted = min(1.0, max(0.0, position + 1 - uncounted))
        return found if counted == 1.0 else found.times(counted)

    found = 0.0
    for stage in {plan.pp - 1, max(plan.pp - 2, 0)}:
        own = sum(part(chunk * plan.pp + stage).both_s for chunk in range(plan.vp))
        if stage == plan.pp - 1 and last is None:
            own += last_s
        before = [part(position) for position in range(stage)]
        filling = sum(each.forward_s for each in before)
        draining = 0.0 if plan.splits_backward else sum(each.backward_s + each.weight_s for each in before)
        found = max(found, filling + microbatches * own + draining)
    return found


def _rate(plan: Plan, device: Device) -> float:
    """FLOP/s that no product of the plan passes: the fastest of its types, at the highest clock."""
    peaks = device.matrix_flops
    names: tuple[str, ...] = {"fp32": ("f32", "tf32"), "tf32": ("tf32", "f32")}.get(plan.precision, ("bf16", "f16"))
    if plan.products != "plain":
        names = ("f8", "f6", "f4", "i8", *names)
    known = [peaks[name] for name in names if name in peaks]
    fastest = max(known, default=max([*peaks.values(), *device.vector_flops.values()]))
    return fastest * max(1.0, device.clock_hz / device.peak_clock_hz)


def _logit_flops(shape: ModelShape) -> float:
    """FLOPs of the output projection of a sequence, forward and backward."""
    return 6.0 * shape.width * shape.vocab * shape.seq if shape.staged else 0.0


def _optimizer_shards(plan: Plan) -> int:
    return plan.dp * plan.ep * plan.cp if plan.zero else 1


def _state_bytes(plan: Plan, shape: ModelShape, microbatches: int) -> float:
    """Weights, gradients and optimizer state of a device, everything in equal shares over whoever may share it."""
    shared = plan.tp * plan.fsdp * plan.cp * plan.ep * (plan.dp if plan.zero == 3 else 1)
    count = shape.parameters / plan.pp / shared
    if not shape.staged:
        return 0.0  # its optimizer may be another
    weight = HALF if plan.in_half else FULL
    gradient = HALF if plan.gradients == "bf16" else FULL
    if not plan.one_program:
        state = STATE if plan.in_half else MOMENTS
        on_host = plan.offload == "optimizer"
        return count * (weight + gradient + (0.0 if on_host else state / _optimizer_shards(plan)))
    # Of one microbatch gradients are what the partitioner leaves; sums over several are kept beside them.
    summed = gradient if microbatches > 1 else HALF
    if plan.zero in (0, 3):
        return count * (FULL + MOMENTS + summed)
    shards = plan.dp * plan.ep * plan.cp
    return count * (weight + STATE / shards + (summed / shards if plan.zero == 2 else summed))


def _gathering_seconds(plan: Plan, shape: ModelShape, microbatches: int, cluster: Cluster) -> float:
    """Seconds, at least, that weights spread over `fsdp` are on their way: gathered for both passes, gradients scattered.

    A domain of a level takes in what its devices' links carry. Of a group that has k devices in each of g domains, each domain
    must take in a share 1 - 1/g of what is gathered, over k links at the most.
    """
    degree = plan.fsdp * (plan.dp if plan.zero == 3 else 1)
    if degree == 1 or not shape.staged:
        return 0.0
    layers = max(0.0, shape.parameters - 2.0 * shape.vocab * shape.width)  # tables of words may be read in shares
    size = HALF * layers / plan.pp / (plan.tp * plan.ep)
    found, domain = 0.0, 1
    for level in cluster.levels:
        if not level.switched:
            return 3 * microbatches * found
        # Devices of `cp` store shares too. From the inside out lie tp, cp, ep, fsdp.
        inside = max(1, min(plan.cp, domain // plan.tp)) * max(1, min(degree, domain // (plan.tp * plan.cp * plan.ep)))
        domains = degree * plan.cp / inside
        if domains > 1:
            found = max(found, size * (1 - 1 / domains) / (inside * level.bandwidth))
        domain = level.size
    return 3 * microbatches * found
