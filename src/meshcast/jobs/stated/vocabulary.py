"""Which items of `extra` are understood: those that a rule reads, and those that say what is so anyway.

Whatever else stands there is listed as not understood with a published run, and is a mistake in a file of one's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from meshcast.base import nearest
from meshcast.jobs.stated.extras import Extras

READ_VALUES = frozenset(
    {
        "lora", "lora_rank", "peft", "mtp", "dense_layers", "capacity_factor", "etp", "dispatcher", "grad_reduce", "weights",
        "params", "cuda_graph", "cuda_graphs", "window", "q_lora", "kv_lora", "qk_nope", "qk_rope", "v", "schedule", "optimizer",
        "mean_seq", "hots",
    }
)  # fmt: skip
"""Names of values that rules read."""
READ_WORDS = frozenset(
    {
        "squared-relu", "squared_relu", "squared relu", "relu2",
        "dropless", "a2a_overlap", "fp8_attention", "fp8_dpa", "float8_attention", "nchw", "relu", "gelu", "silu", "swiglu",
        "attention_sink", "attention_sinks", "cuda_graph", "cuda_graphs", "lora", "unpad", "unpadded", "unpad_fmha", "packed",
        "packed_samples", "sharp", "full-iteration", "te-scoped", "adam", "adamw", "sgd", "lamb", "adafactor", "adagrad",
    }
)  # fmt: skip
"""Words that rules read."""
# Values that are whole numbers.
_WHOLE = frozenset(
    {"lora_rank", "mtp", "dense_layers", "etp", "q_lora", "kv_lora", "qk_nope", "qk_rope", "v", "mean_seq", "hots"}
)
_KINDS = {
    "capacity_factor": "number of more than zero, such as 1.25",
    "window": "number of positions, such as 1024 or '1024 on 5 of 6 layers'",
}
# Those that say what other cells say, or what programs and stacks are like without a word.
_TOLD_VALUES = (
    r"compute|scan_layers|grad_accum\w*|gradient_accumulation\w*|per_device_batch|local_batch|micro_batch\w*|routing|router|recipe|"
    r"num_vocab_tiling|criteo fl|masked_positions|(?:ici|dcn)_\w+|moe_permute_fusion|epochs|steps|seed|bucket_cap_mb"
)
_TOLD_WORDS = (
    r"nhwc|v1\.5|images? \d+(?: ?x ?\d+)?|(?:learned|rotary) positions|rotary|rope|(?:no )?biases|multi-query|grouped-query|"
    r"dropping|megablox|one-hot|multi-hot|tp_comm_overlap|horovod|xla|fused[_ -].*|swiglu|geglu|cross entropy|loss_parallel|"
    r"sgd momentum|real input pipeline|synthetic data|dot interaction|\d+ tables(?: x \d+)?|(?:bottom|top) \d+(?:-\d+)+|"
    r"tables split over devices|all-to-all|[\d.,]+ gb\b.*|one device|moe on every \d+\w\w layer|layer_norm|rmsnorm|"
    r"dense_seq_output|exchange_padding|pad_fmha|use_transformer_engine\d?|.*hlo_runner.*|forced-balanced|.*fp8 on linears.*|"
    r"alibi|q[k-]?k?[-_]norm|qk[-_ ]?norm|qkv[-_ ]bias(?:es)?|soft-?cap.*|latents|parallel attention and mlp|"
    r"distributed_optimizer|overlap_grad_reduce|overlap_param_gather"
)


def not_understood(extra: Extras) -> tuple[str, ...]:
    """Items that no rule reads and that do not go without saying, as they are written, in small letters."""
    return tuple(f"{name}={extra.values[name]}" if name in extra.values else name for name in _unknown(extra))


def why_not_understood(item: str) -> str:
    """What is wrong with an item that is not understood: its value, or its name, with what helps."""
    name, equals, value = item.partition("=")
    if equals and name in READ_VALUES:
        return f"{item}: {value!r} is no {_KINDS.get(name, 'whole number, such as 3')}"
    return f"nothing is known as {item!r}, {nearest_item(item)}"


def nearest_item(item: str) -> str:
    """What helps with an item that is not understood: the nearest one that is."""
    return nearest(item.partition("=")[0], sorted({*READ_VALUES, *READ_WORDS}))


def understood(extra: Extras) -> Iterator[str]:
    """The items of an `extra`, as a job's file takes them, without what is not understood."""
    for item in filter(None, (each.strip() for each in extra.text.split(";"))):
        own = Extras.read(item)
        unknown = set(_unknown(own))
        if not unknown:
            yield item
            continue
        yield from (f"{name}={value}" for name, value in own.values.items() if name not in unknown)
        yield from sorted(own.words - unknown)


def _unknown(extra: Extras) -> list[str]:
    names = [name for name in extra.values if name not in READ_VALUES and not re.fullmatch(_TOLD_VALUES, name)]
    names += [name for name in extra.values if name in _WHOLE and extra.whole(name) is None]
    names += (
        ["capacity_factor"] if "capacity_factor" in extra.values and extra.number("capacity_factor") is None else []
    )
    names += ["window"] if "window" in extra.values and extra.window is None else []
    words = [
        word for word in sorted(extra.words) if word not in READ_WORDS and not re.fullmatch(_TOLD_WORDS, word.strip())
    ]
    return names + words
