"""What a run's layers keep for the backward pass, and where: the `recompute` cell as a plan's `remat` and `offload`.

Policies go by the names that frameworks give them. What each keeps:

- MaxText (`layers/decoders.py`, `get_remat_policy`): `full` nothing but a layer's input; `minimal`, `save_dot...` the results of
  products with weights, `minimal_with_context` and `minimal_flash` those of attention too; `...except_mlp` and `save_out_proj`
  heads and the result of attention; `save_qkv_proj` queries, keys and values; `..._offloaded` keeps the same at the host.
- torchtitan (`parallelize_llama.py`, selective op): results of attention and of every second product with weights.
- Megatron (`--recompute-modules`): only the named parts of a layer are computed again; `mla_up_proj`, `layernorm`, `moe_act`
  cost next to nothing and the rest is kept, `core_attn` is `selective`, `mlp` and `moe` keep what attention does.
  `full:N-layers` (`--recompute-num-layers`, of each part of a pipeline) is `full` where N are half of a part's layers or more,
  and `none` where they are fewer: a plan treats all layers alike. Its layers run again to their end, a plan's `whole`.
- `save:a+b` and `offload:a+b` keep only these.
"""

from __future__ import annotations

import re
from typing import Literal

from meshcast.jobs.stated.findings import Findings
from meshcast.jobs.stated.run import StatedRun
from meshcast.options import Stack

Choice = dict[str, int | str]
# (pattern in a policy's name, the plan's word, what is taken for granted), the more special ones first.
_POLICIES = (
    (r"selective-op|op-selective|sac", "alternate", ""),
    (r"except_mlp|save_out_proj|attn_only", "attention", "heads and results of attention are kept"),
    (r"qkv_proj|save_qkv", "heads", "a layer keeps its input, queries, keys and values"),
    (r"minimal_flash|minimal_with_context|minimal_with_quantization_and_context", "selective",
     "results of products with weights are kept"),
    (r"save_dot|minimal|dots", "selective", "results of products with weights are kept"),
    (r"core_attn", "selective", ""),
    (r"(?:^|\+)(?:mlp|moe)(?:\+|$)", "attention", "heads and results of attention are kept"),
    (r"mla_up_proj|layernorm|moe_act|norm", "none", "it is small beside the rest"),
    (r"full|nothing", "full", ""),
)  # fmt: skip
_COUNTED = r"(\d+)-layers?"
_HEADS = {"q", "k", "v", "qkv", "query_proj", "key_proj", "value_proj"}
_RESULTS = {"out_proj", "context", "attention_out"}
_FEED_FORWARD = {"mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo", "mlp"}


def activations_of(run: StatedRun, stack: Stack, found: Findings) -> Choice:
    """`remat`, and `offload` where what is kept waits at the host."""
    kind, _, named = run.recompute.partition(":")
    if not run.recompute:
        found.assumes(f"recomputation {stack.recomputation}, as {stack.name} has it")
        return {"remat": stack.remat}
    if kind == "full" and (counted := re.fullmatch(_COUNTED, named)):
        most = _most(int(counted[1]), run)
        found.assumes(f"recompute {run.recompute!r} is taken as {most}, of all layers: what most layers of a stage do")
        return {"remat": stack.full if most == "full" else most}
    if kind in ("none", "full"):
        return {"remat": stack.full if kind == "full" else kind}
    if kind == "selective":
        return {"remat": "selective"}
    if kind == "offload":
        if run.degree("pp") > 1:
            found.assumes("what stages keep stays on the device: copies to the host and back run beside their passes")
            return _kept(named, found, run.recompute)
        return {**_kept(named, found, run.recompute), "offload": "activations"}
    if kind == "policy" and named.startswith("save:"):
        return _kept(named.removeprefix("save:"), found, run.recompute)
    if kind == "policy":
        for pattern, word, granted in _POLICIES:
            if re.search(pattern, named):
                if granted:
                    found.assumes(f"recompute {run.recompute!r} is taken as {word}: {granted}")
                at_host = "offload" in named and run.degree("pp") == 1
                return {"remat": word, "offload": "activations"} if at_host else {"remat": word}
    found.assumes(f"recompute {run.recompute!r} is no policy that is known: {stack.remat}, as {stack.name} has it")
    return {"remat": stack.remat}


def _most(recomputed: int, run: StatedRun) -> Literal["full", "none"]:
    """What most layers of a part do, of which so many are computed again; all of them where the layers are not told."""
    layers = run.counts.get("layers", 0) / (run.degree("pp") * run.degree("vp"))
    return "full" if 2 * recomputed >= layers else "none"


def known_recomputation(text: str) -> bool:
    """Whether a text is one that `activations_of` has a rule for, and not only the stack's habit."""
    kind, _, named = text.partition(":")
    if kind == "full":
        return not named or re.fullmatch(_COUNTED, named) is not None
    if kind in ("none", "selective"):
        return not named
    if kind == "offload":
        return bool(named)
    if kind != "policy":
        return False
    saved = named.removeprefix("save:")
    return bool(saved) if named != saved else any(re.search(pattern, named) for pattern, _, _ in _POLICIES)


def _kept(named: str, found: Findings, cell: str) -> Choice:
    """The plan's word that keeps the named arrays of a layer, or what is nearest to them."""
    if re.fullmatch(r"activations(?:-of-\d+-layers)?", named):
        found.assumes(f"recompute {cell!r} is taken as none: what layers keep waits at the host")
        return {"remat": "none"}
    names = set(named.split("+")) - {"layer_input", "decoder_layer_input", ""}
    if names & _FEED_FORWARD:
        word = "selective"
    elif names & _RESULTS:
        word = "attention"
    else:
        word = "heads" if names & _HEADS else "full"
    found.assumes(f"recompute {cell!r} is taken as {word}")
    return {"remat": word}
