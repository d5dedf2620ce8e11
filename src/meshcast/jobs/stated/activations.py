"""What a run's layers keep for the backward pass, and where: the `recompute` cell as a plan's `remat` and `offload`.

Policies go by the names that frameworks give them. What each keeps:

- MaxText (`layers/decoders.py`, `get_remat_policy`): `full` nothing but a layer's input; `minimal`, `save_dot...` the results of
  products with weights, so that attention's core runs again, `minimal_with_context` and `minimal_flash` that of a fused one
  too; `...except_mlp` those around attention, and its own where `with_context` says so; `save_qkv_proj` queries, keys and
  values; `save_out_proj` one product of a layer, about as much as nothing; `..._offloaded` keeps the same at the host.
- torchtitan (`parallelize_llama.py`, selective op): results of attention and of every second product with weights.
- Megatron (`--recompute-modules`): only the named parts of a layer are computed again; `mla_up_proj`, `layernorm`, `moe_act`
  cost next to nothing and the rest is kept, `core_attn` is `selective`, `mlp` and `moe` keep what attention does, both
  together what stands around its core.
  `full:N-layers` (`--recompute-num-layers`, of each part of a pipeline) computes the first N of a part's layers again to their
  end, a plan's `whole` of the decoder's `recomputed`; other models all layers where N are half of a part's or more, else none.
- fms-fsdp (`fms_fsdp/policies/ac_handler.py`, `selective_checkpointing`): a fraction of the blocks, evenly spread, computes all
  again (`1/2`), which is as many counted layers.
- `save:a+b` and `offload:a+b` keep only these.
"""

from __future__ import annotations

import re
from typing import Literal

from meshcast.jobs.stated.findings import Findings
from meshcast.jobs.stated.run import StatedRun
from meshcast.options import Stack

Choice = dict[str, int | str]
_WITH_CONTEXT = "products and attention"
"""What keeps products with weights and the result of attention: by the attention that a run has."""
# (pattern in a policy's name, the plan's word, what is taken for granted), the more special ones first.
_POLICIES = (
    (r"selective-op|op-selective|sac", "alternate", ""),
    (r"with_context_except_mlp|attn_only", "attention", "heads and results of attention are kept"),
    (r"except_mlp", "projections", "results of the products around attention are kept"),
    (r"save_out_proj", "full", "one product of a layer is little"),
    (r"qkv_proj|save_qkv", "heads", "a layer keeps its input, queries, keys and values"),
    (r"minimal_flash|minimal_with\w*_context", _WITH_CONTEXT, ""),
    (r"save_dot|minimal|dots", "selective", "results of products with weights are kept"),
    (r"core_attn\+(?:.*\+)?(?:mlp|moe)(?:\+|$)|(?:^|\+)(?:mlp|moe)\+(?:.*\+)?core_attn", "projections",
     "results of the products around attention are kept"),
    (r"core_attn", "selective", ""),
    (r"(?:^|\+)(?:mlp|moe)(?:\+|$)", "attention", "heads and results of attention are kept"),
    (r"mla_up_proj|layernorm|moe_act|norm", "none", "it is small beside the rest"),
    (r"full|nothing", "full", ""),
)  # fmt: skip
_COUNTED = r"(\d+)-layers?"
_FRACTION = r"(\d+)/(\d+)"
_HEADS = {"q", "k", "v", "qkv", "query_proj", "key_proj", "value_proj"}
_RESULTS = {"context", "attention_out"}  # of attention's core
_AROUND = {"out_proj"}
_FEED_FORWARD = {"mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo", "mlp"}


def recomputed_layers(run: StatedRun) -> int:
    """Layers of each part of a pipeline that are computed again, where others of it are not (`full:N-layers`); else 0."""
    counted = _counted(run)
    return counted if counted is not None and counted < _layers_of_a_part(run) else 0


def activations_of(run: StatedRun, stack: Stack, found: Findings, *, in_part: bool = False) -> Choice:
    """`remat`, and `offload` where what is kept waits at the host; `in_part`: the model has layers that are kept and others."""
    kind, _, named = run.recompute.partition(":")
    if not run.recompute:
        found.assumes(f"recomputation {stack.recomputation}, as {stack.name} has it")
        return {"remat": stack.remat}
    if (counted := _counted(run)) is not None:
        if in_part or counted >= _layers_of_a_part(run) > 0:
            return {"remat": stack.full}
        most = _most(counted, run)
        found.assumes(f"recompute {run.recompute!r} is taken as {most}, of all layers: what most layers of a stage do")
        return {"remat": stack.full if most == "full" else most}
    if kind in ("none", "full"):
        if named:
            found.assumes(f"recompute {run.recompute!r} is taken as {kind}, of all layers")
        return {"remat": stack.full if kind == "full" else kind}
    if kind == "selective" and not named:
        return {"remat": "selective"}
    if kind == "offload":
        if run.degree("pp") > 1:
            found.assumes("what stages keep stays on the device: copies to the host and back run beside their passes")
            return _kept(named, run, stack, found)
        return {**_kept(named, run, stack, found), "offload": "activations"}
    if kind == "policy" and named.startswith("save:"):
        return _kept(named.removeprefix("save:"), run, stack, found)
    if kind in ("policy", "selective"):
        for pattern, word, granted in _POLICIES:
            if re.search(pattern, named):
                if word == _WITH_CONTEXT:
                    word = _with_context(run, stack)
                    granted = "results of products with weights and of fused attention are kept"
                if granted:
                    found.assumes(f"recompute {run.recompute!r} is taken as {word}: {granted}")
                at_host = "offload" in named and run.degree("pp") == 1
                return {"remat": word, "offload": "activations"} if at_host else {"remat": word}
    if kind == "selective":
        found.assumes(f"recompute {run.recompute!r} is taken as selective: {named} is no part of a layer that is known")
        return {"remat": "selective"}
    found.assumes(f"recompute {run.recompute!r} is no policy that is known: {stack.remat}, as {stack.name} has it")
    return {"remat": stack.remat}


def _counted(run: StatedRun) -> int | None:
    """Layers of a part of a pipeline that are computed again, where their number or a fraction is told; else None."""
    kind, _, named = run.recompute.partition(":")
    if kind == "full" and (counted := re.fullmatch(_COUNTED, named)):
        return int(counted[1])
    if kind in ("policy", "full", "selective") and (fraction := re.fullmatch(_FRACTION, named)):
        whole = int(fraction[2])
        return round(_layers_of_a_part(run) * min(int(fraction[1]), whole) / whole) if whole else None
    return None


def _layers_of_a_part(run: StatedRun) -> float:
    return run.counts.get("layers", 0) / (run.degree("pp") * run.degree("vp"))


def _with_context(run: StatedRun, stack: Stack) -> str:
    """What keeps products with weights and the result of attention.

    Of a fused kernel that is its result; scores that are products of their own are multiplied again.
    """
    return "products" if _is_fused(run, stack) else "selective"


def _is_fused(run: StatedRun, stack: Stack) -> bool:
    return stack.attention != "plain" and run.precision not in ("fp32", "tf32")


def _most(recomputed: int, run: StatedRun) -> Literal["full", "none"]:
    """What most layers of a part do, of which so many are computed again; all of them where the layers are not told."""
    return "full" if 2 * recomputed >= _layers_of_a_part(run) else "none"


def known_recomputation(text: str) -> bool:
    """Whether a text is one that `activations_of` has a rule for, and not only the stack's habit."""
    kind, _, named = text.partition(":")
    if kind in ("policy", "full", "selective") and re.fullmatch(_FRACTION, named):
        return True
    if kind == "full":
        return not named or re.fullmatch(_COUNTED, named) is not None
    if kind == "none" or not named:
        return kind in ("none", "selective") and not named
    if kind == "offload":
        return bool(named)
    if kind not in ("policy", "selective"):
        return False
    saved = named.removeprefix("save:")
    return bool(saved) if named != saved else any(re.search(pattern, named) for pattern, _, _ in _POLICIES)


def _kept(named: str, run: StatedRun, stack: Stack, found: Findings) -> Choice:
    """The plan's word that keeps the named arrays of a layer, or what is nearest to them."""
    if re.fullmatch(r"activations(?:-of-\d+-layers)?", named):
        found.assumes(f"recompute {run.recompute!r} is taken as none: what layers keep waits at the host")
        return {"remat": "none"}
    names = set(named.split("+")) - {"layer_input", "decoder_layer_input", ""}
    context = names & _RESULTS and _is_fused(run, stack)
    if names & _FEED_FORWARD:
        word = "products" if context else "selective"
    elif names & _RESULTS:
        word = "attention"
    elif names & _HEADS:
        word = "projections" if names & _AROUND else "heads"
    else:
        word = "full"
    found.assumes(f"recompute {run.recompute!r} is taken as {word}")
    return {"remat": word}
