"""Names of training software as people write them, and the ones that rules go by.

Case, spaces, dashes, vendors and versions in a name do not matter: `Megatron-LM`, `NVIDIA NeMo 2.0` and `HF Trainer` are
`megatron`, `nemo` and `huggingface`. What no name is known for is taken as the nearest by its parts, and that is told.
"""

from __future__ import annotations

import difflib
import re

from meshcast.options import stack_names

# Frameworks that are a stack whatever their version, and those that others run like.
STACKS = {
    "megatron-bridge": "nemo", "nemo": "nemo", "megatron-core": "megatron", "maxtext": "maxtext", "llm-foundry": "composer",
    "composer": "composer", "levanter": "xla", "jax": "xla", "t5x": "xla", "paxml": "xla", "praxis": "xla",
    "axlearn": "maxtext", "easylm": "xla", "mxnet": "mxnet", "nemo-automodel": "pytorch-fsdp",
    "megatron-deepspeed": "megatron-deepspeed",
}  # fmt: skip
# Those that are taken as another, which is listed as assumed: what they are built on, or do alike.
RELATED = {
    "meta-internal": "pytorch-fsdp", "neuronx": "xla", "optimum-neuron": "xla", "pytorch-xla": "xla", "hugectr": "apex",
    "maxdiffusion": "maxtext", "colossalai": "pytorch-fsdp", "habana": "pytorch-fsdp", "gpt-neox": "megatron-deepspeed",
    "megatron-fsdp": "nemo", "primus": "megatron", "fairseq": "pytorch-ddp", "nanotron": "megatron", "torchtune": "pytorch-fsdp",
    "litgpt": "pytorch-fsdp", "apex": "apex",
}  # fmt: skip
PYTORCH = (
    "torchtitan", "pytorch", "fms-fsdp", "deepspeed", "huggingface", "accelerate", "lightning", "tensorflow", "torchrec",
    "axolotl",
)  # fmt: skip
SUBMISSIONS = "mlperf"
"""Vendors' submissions to MLPerf, whose software goes by the model."""
_VENDORS = frozenset(
    {"nvidia", "google", "meta", "aws", "amd", "ibm", "microsoft", "databricks", "mosaicml", "mosaic", "intel"}
)
_SAME = {
    "megatron-lm": "megatron", "mcore": "megatron-core", "megatron-core": "megatron-core", "nemo-framework": "nemo",
    "nemo-megatron": "nemo", "transformers": "huggingface", "hf": "huggingface", "hf-trainer": "huggingface",
    "huggingface-trainer": "huggingface", "hugging-face": "huggingface", "hf-transformers": "huggingface", "trl": "huggingface",
    "huggingface-transformers": "huggingface", "hf-accelerate": "accelerate", "huggingface-accelerate": "accelerate",
    "transformers-trainer": "huggingface", "pytorch-lightning": "lightning", "lightning-fabric": "lightning",
    "torch": "pytorch", "pytorch-ddp": "pytorch-ddp", "pytorch-fsdp": "pytorch-fsdp", "fsdp": "pytorch-fsdp",
    "ddp": "pytorch-ddp", "fsdp2": "pytorch-fsdp", "pytorch-fsdp2": "pytorch-fsdp", "torch-fsdp": "pytorch-fsdp",
    "tf": "tensorflow", "keras": "tensorflow", "pax": "paxml", "jax-toolbox": "jax", "flax": "jax", "colossal-ai": "colossalai",
    "llmfoundry": "llm-foundry", "foundry": "llm-foundry", "automodel": "nemo-automodel", "nxd": "neuronx",
    "neuronx-distributed": "neuronx", "torch-neuronx": "neuronx", "nxdt": "neuronx", "neuronx-nemo-megatron": "neuronx",
    "torch-xla": "pytorch-xla", "torchprime": "pytorch-xla", "mlperf-training": "mlperf", "mlcommons": "mlperf",
    "merlin-hugectr": "hugectr", "gaudi": "habana", "optimum-habana": "habana", "gptneox": "gpt-neox", "neox": "gpt-neox",
    "foundation-model-stack": "fms-fsdp", "fms": "fms-fsdp", "deep-speed": "deepspeed", "zero": "deepspeed",
}  # fmt: skip
_CLOSE = 0.75


def canonical(name: str) -> str:
    """The name that rules go by; what none is known for stays as it is, in small letters."""
    told = name.strip().lower()
    if not told or told in known_names():
        return told
    for each in _spellings(told):
        if each in known_names():
            return each
        if each in _SAME:
            return _SAME[each]
    return told


def known_names() -> frozenset[str]:
    """Every framework that is a stack, or is taken as one."""
    return frozenset({*stack_names(), *STACKS, *RELATED, *PYTORCH, "megatron", SUBMISSIONS})


def nearest_name(name: str) -> str | None:
    """The known framework that an unknown name is most like: one that it has as a part, else by its letters."""
    told = next(iter(_spellings(name.strip().lower())), "")
    parts = set(told.split("-"))
    within = [each for each in sorted({*known_names(), *_SAME}) if set(each.split("-")) <= parts]
    if within:
        best = max(within, key=lambda each: (each.count("-"), len(each)))
        return _SAME.get(best, best)
    close = difflib.get_close_matches(told, sorted({*known_names(), *_SAME}), n=1, cutoff=_CLOSE)
    return _SAME.get(close[0], close[0]) if close else None


def _spellings(told: str) -> list[str]:
    """A name with dashes alone, then without what stands in brackets, a version, vendors and both."""
    plain = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(.*?\)", " ", told)).strip("-")
    unversioned = re.sub(r"(?:-?v?\d[\d-]*)$", "", plain)
    found = [plain, unversioned]
    for each in (plain, unversioned):
        found.append("-".join(part for part in each.split("-") if part not in _VENDORS))
    joined = [each.replace("-", "") for each in found]
    return [each for each in dict.fromkeys([*found, *joined]) if each]
