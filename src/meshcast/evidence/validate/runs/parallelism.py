"""A run's plan: how its devices share the model and the batch, in the words of `--plan`.

With R = devices / (tp x pp x cp) ranks of data parallelism, `dp x fsdp x ep = R`: experts are spread over ranks that
share the batch too. A step is `gbs / (mbs x R)` microbatches a rank.
"""

from __future__ import annotations

import math
import re

from meshcast.evidence.validate.runs.findings import Findings
from meshcast.evidence.validate.runs.rows import DEGREES, RunRow
from meshcast.evidence.validate.runs.shapes import RunModel
from meshcast.evidence.validate.runs.software import offloaded, precision_of, recomputation_of
from meshcast.evidence.validate.runs.systems import RunSystem
from meshcast.options import Stack

Plan = dict[str, int | str]
# Rows that say it, and sources that say it of all their runs: Llama 3's (Dubey 2024, section 3.3.2).
_INTERLEAVED = re.compile(r"interleaved|2407\.21783")


def plan_text(plan: Plan) -> str:
    """The plan as `--plan` takes it; degrees of one are left out."""
    return ",".join(f"{name}={value}" for name, value in plan.items() if name == "dp" or _says_something(name, value))


def _says_something(name: str, value: int | str) -> bool:
    return name not in DEGREES or value not in (0, 1) or (name == "sp" and value == 1)


def plan_of(row: RunRow, model: RunModel, stack: Stack, system: RunSystem, found: Findings) -> Plan:
    """The plan of a row on its system."""
    devices = system.devices
    told = {name: size for name, size in row.degrees.items() if size}
    if model.language and devices > 1 and not told.keys() - {"sp"}:
        found.lacks(f"parallelism ({', '.join(DEGREES)})")
        return {}
    plan: Plan = {}
    shards = {name: told.get(name, 1) for name in ("tp", "pp", "cp")}
    ranks, rest = divmod(devices, math.prod(shards.values()))
    if rest or not ranks:
        said = " x ".join(f"{name}={size}" for name, size in shards.items())
        found.lacks(f"a plan that fits: {said} do not divide {devices} devices")
        return {}
    plan |= _data_parallel(row, model, stack, told, ranks, found)
    if model.language:
        plan |= _kept_or_shared(plan, stack, told, found)
    if model.language:
        plan |= shards | _inside(row, stack, shards["tp"], found)
    plan |= _schedule(row, model, shards["pp"], told, found)
    plan |= _microbatch(row, stack, ranks, devices, shards["pp"], found)
    if model.language:
        plan["remat"] = recomputation_of(row, stack, found)
        if offloaded(row, found):
            plan["offload"] = "activations"
        plan["attention"] = _attention(stack, shards["cp"])
        if stack.gradients != "fp32":
            found.assumes(f"gradients added up in {stack.gradients}, as {stack.name} has it")
            plan["gradients"] = stack.gradients
    plan["precision"] = precision_of(row, system.cluster.device, found)
    return plan


def _data_parallel(
    row: RunRow, model: RunModel, stack: Stack, told: dict[str, int], ranks: int, found: Findings
) -> Plan:
    """dp, fsdp, ep and zero: what their product must be is known, so that what is not told follows."""
    experts = told.get("ep", 1) if getattr(model.config, "experts", 0) else 1
    if ranks % experts:
        fitting = math.gcd(ranks, experts)
        found.assumes(f"ep={fitting}: ep={experts} reaches over tensor ranks, and {ranks} ranks share the batch")
        experts = fitting
    sharded = told.get("fsdp", 1)
    if (ranks // experts) % sharded:
        found.assumes(f"fsdp={ranks // experts}: fsdp={sharded} does not divide the {ranks} ranks that share the batch")
        sharded = ranks // experts
    plain = ranks // experts // sharded
    if "dp" in told and told["dp"] not in (plain, plain * experts, ranks):
        found.assumes(f"dp={plain}: dp={told['dp']} is not what {ranks} ranks leave")
    elif "dp" not in told and plain > 1:
        found.assumes(f"dp={plain}, what the other degrees leave of the devices")
    if "shard_grad_op" in row.words and sharded > 1:
        return {"dp": plain * sharded, "fsdp": 1, "ep": experts, "zero": 2}  # weights whole, the rest sharded
    shares = stack.zero and model.language and plain * experts > 1 and sharded == 1
    zero: Plan = {"zero": stack.zero} if shares else {}
    if zero:
        found.assumes(f"zero={stack.zero}, as {stack.name} has it")
    return {"dp": plain, "fsdp": sharded, "ep": experts, **zero}


def _kept_or_shared(plan: Plan, stack: Stack, told: dict[str, int], found: Findings) -> Plan:
    """What FSDP becomes beside stages, and of ranks that split a sequence alone.

    Beside stages PyTorch's FSDP gathers weights once a step and keeps them (torchtitan's `reshard_after_forward: default`;
    Dubey 2024, section 3.3.2): it shares out the optimizer's state. Its shards are those of context ranks too
    (torchtitan's `dp_shard_cp`), whatever is left for `fsdp` alone.
    """
    sharded = int(plan["fsdp"])
    if "fsdp" not in told or stack.zero != 1:
        return {}
    if told.get("pp", 1) > 1:
        found.assumes(
            f"zero=1 for fsdp={sharded}: beside stages {stack.name} gathers weights once a step and keeps them"
        )
        return {"dp": int(plan["dp"]) * sharded, "fsdp": 1, "zero": 1}
    return {"zero": 3} if sharded == 1 and told.get("cp", 1) > 1 else {}


def _inside(row: RunRow, stack: Stack, tensor: int, found: Findings) -> Plan:
    """Sequence parallelism, which goes with tensor parallelism."""
    if tensor == 1:
        return {"sp": 0}
    if "sp" not in row.degrees:
        found.assumes(f"sequence parallelism {'on' if stack.sequence_parallel else 'off'}, as {stack.name} has it")
    return {"sp": int(row.degrees.get("sp", int(stack.sequence_parallel)) > 0)}


def _attention(stack: Stack, context: int) -> str:
    """The stack's attention, and how keys and values reach the devices that split a sequence."""
    if context == 1:
        return stack.attention
    return f"flash-{stack.context_attention}" if stack.attention != "plain" else stack.context_attention


def shared_out(layers: int, parts: int) -> list[int]:
    """Layers of every part of a model, in order: as even as they can be, the last and the first ones with fewer.

    The ends have the embedding and the loss to compute besides (Llama 3 takes a layer from each, Dubey 2024, section 3.3.2).
    """
    full = -(-layers // parts)
    counts = [full] * parts
    ends = [place for pair in zip(range(parts - 1, -1, -1), range(parts), strict=True) for place in pair]
    for place in list(dict.fromkeys(ends))[: full * parts - layers]:
        counts[place] -= 1
    return counts


def _schedule(row: RunRow, model: RunModel, stages: int, told: dict[str, int], found: Findings) -> Plan:
    """Virtual stages and the schedule of a pipeline."""
    if stages == 1:
        return {}
    virtual = told.get("vp", 0)
    if not virtual and (_INTERLEAVED.search(row.words) or _INTERLEAVED.search(row.source)):
        virtual = 2
        found.assumes("vp=2: an interleaved schedule whose virtual stages are not told")
    elif not virtual:
        virtual = 1
        found.assumes("vp=1")
    plan: Plan = {"vp": virtual, "schedule": "interleaved" if virtual > 1 else "1f1b"}
    layers, parts = model.config.layers, stages * virtual
    if layers % parts:
        plan["layers-per-stage"] = "+".join(map(str, shared_out(layers, parts)))
        found.assumes(f"{layers} layers over {parts} parts: the last and the first ones have fewer")
    return plan


def _microbatch(row: RunRow, stack: Stack, ranks: int, devices: int, stages: int, found: Findings) -> Plan:
    """The microbatch; the global batch must be a multiple of what the ranks take at once."""
    batch, micro = row.counts.get("gbs"), row.counts.get("mbs")
    if micro is not None and stages > 1 and re.search(r"local batch", row.words):
        # torchtitan makes as many microbatches as there are ranks of a pipeline (pipeline_parallel_microbatches).
        local, micro = micro, max(1, micro // stages)
        found.assumes(f"mbs={micro}: a local batch of {local} in {stages} microbatches, as many as stages")
    if batch is None:
        return {}
    if micro is not None and stack.batch_per_device:
        micro *= devices // ranks  # devices that split one rank's work have a batch each, too
    if micro is None:
        micro = 1 if stages > 1 else max(1, batch // ranks)
        found.assumes(f"mbs={micro}")
    if batch % (micro * ranks):
        found.lacks(f"a batch that fits: gbs={batch} is no multiple of mbs={micro} x {ranks} ranks")
    return {"mbs": micro}
