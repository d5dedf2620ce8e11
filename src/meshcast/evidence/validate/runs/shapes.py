"""From a run's model to a model of the zoo and its settings: by name where the zoo has it, by sizes otherwise.

Sizes that the row gives override the zoo's. A name that the zoo does not know is built on a general model of its family,
and then the row must give every size.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshcast.evidence.validate.runs.findings import Findings
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.zoo import Builder, models

# What a name means: (pattern, the zoo's name, the general model where the zoo has no such size). A general model gives
# the kind of layers and none of the sizes.
_NAMES = (
    (r"llama[- ]?2[- ](\d+b)", "llama2-{}", "llama2-7b"),
    (r"llama[- ]?3\.2[- ](\d+b)", "llama3.2-{}", "llama3-8b"),
    (r"llama[- ]?3(?:\.\d)?[- ]([\d.]+[bm])", "llama3-{}", "llama3-8b"),
    (r"mixtral[- ](8x\d+b)", "mixtral-{}", "mixtral-8x7b"),
    (r"deepseek[- ]?v(\d(?:-lite)?)", "deepseek-v{}", "deepseek-v3"),
    (r"qwen[- ]?3[- ](\d+b-a\d+b)", "qwen3-{}", "qwen3-30b-a3b"),
    (r"qwen[- ]?3[- ]([\d.]+b)", "qwen3-{}", "qwen3-8b"),
    (r"qwen[- ]?2(?:\.5)?[- ]([\d.]+b)", "qwen2.5-{}", "qwen2.5-7b"),
    (r"gemma[- ]?1?[- ](\d+b)", "gemma-{}", "gemma-7b"),
    (r"gemma[- ]?2[- ](\d+b)", "gemma2-{}", "gemma2-9b"),
    (r"gemma[- ]?3[- ](\d+b)", "gemma3-{}", "gemma3-12b"),
    (r"mistral[- ](\d+b)", "mistral-{}", "mistral-7b"),
    (r"gpt[- ]?3[- ]([\d.]+[bm])", "gpt3-{}", "gpt3-175b"),
    (r"mt-nlg", "megatron-530b", "megatron-530b"),
    (r"^(?:megatron[- ])?(?:gpt[- ])?([\d.]+[bt])$", "megatron-{}", "megatron-22b"),
    (r"bert[- ](base|large)", "bert-{}", "bert-base"),
    (r"\bt5[- ](small|base|large|3b|11b)", "t5-{}", "t5-base"),
    (r"vit[- ]?([blh])[-/ ]?(\d+)", "vit-{}{}", "vit-b16"),
    (r"resnet-?(\d+)", "resnet{}", "resnet50"),
    (r"dlrm", "dlrm-criteo", "dlrm-criteo"),
    (r"moe|\d+e\b|gpt-oss|llama-?4", "", "mixtral-8x7b"),
    (r"maxtext|llama|palm|qwen|gemma|mistral", "", "llama3-8b"),
    (r"gpt|\bmpt\b|\bopt\b|gopher|bloom", "", "gpt2-small"),
)
# The row's columns and the settings that they are, by the module of a family.
_FIELDS: Mapping[str, Mapping[str, str]] = {
    "decoder": {
        "layers": "layers", "hidden": "dim", "ffn": "ffn", "heads": "heads", "kv_heads": "kv_heads", "vocab": "vocab",
    },
    "gpt": {"layers": "layers", "hidden": "dim", "ffn": "ffn", "heads": "heads", "vocab": "vocab"},
}  # fmt: skip
_MANY_EXPERTS = 16  # from so many on, one-hot products would cost more than what they move
_ROW_BYTES = 4  # of a table's number


@dataclass(frozen=True, slots=True, kw_only=True)
class RunModel:
    """A model of the zoo with its settings, those that are its own already left out."""

    builder: Builder
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The zoo's."""
        return self.builder.name

    @property
    def config(self) -> Any:
        """The configuration with the settings."""
        return self.builder.configured(**self.settings)

    @property
    def language(self) -> bool:
        """Whether the model reads tokens, so that a sequence length belongs to its shape."""
        return self.builder.module in _FIELDS


def model_of(row: RunRow, found: Findings) -> RunModel | None:
    """The model that a row describes; what it lacks, and what is taken for granted, goes to `found`."""
    zoo, text = models(), row.model.lower()
    for pattern, template, general in _NAMES:
        if match := re.search(pattern, text):
            name = template.format(*match.groups())
            known = name in zoo
            builder = zoo[name if known else general]
            break
    else:
        found.lacks(f"a rule for the model {row.model!r}")
        return None
    fields = _FIELDS.get(builder.module)
    if fields is None:
        return _of_other_kind(row, builder, found)
    if not known:
        if lacking := [column for column in ("layers", "hidden", "heads", "ffn", "vocab") if column not in row.counts]:
            found.lacks(f"the model's {', '.join(lacking)}")
            return None
        found.assumes(f"{row.model}: layers as in {builder.name}, of the sizes given")
    settings: dict[str, Any] = {fields[column]: row.counts[column] for column in fields if column in row.counts}
    if "seq" not in row.counts:
        found.lacks("seq")
    if builder.module == "gpt":
        settings |= _positions(row, builder, found)
    else:
        settings |= _decoder_settings(row, builder, settings, known=known, found=found)
    return RunModel(builder=builder, settings=_changes(builder, settings))


def _positions(row: RunRow, builder: Builder, found: Findings) -> dict[str, Any]:
    """Learned positions for the whole sequence."""
    heads, groups = row.counts.get("heads"), row.counts.get("kv_heads")
    if groups is not None and groups != heads:
        found.lacks(f"a GPT whose {heads} heads share {groups} keys")
    if "alibi" in row.words:
        found.assumes("learned positions and biases, where the run may have ALiBi and none: neither costs much")
    return {"positions": row.counts["seq"]} if "seq" in row.counts else {}


def _decoder_settings(
    row: RunRow, builder: Builder, sizes: Mapping[str, Any], *, known: bool, found: Findings
) -> dict[str, Any]:
    """Settings that a decoder's words add to its sizes."""
    words, config = row.words, builder.config
    settings: dict[str, Any] = {}
    if width := re.search(r"head_dim (\d+)", words):
        settings["head_dim"] = int(width[1])
    elif not known:
        settings["head_dim"] = sizes["dim"] // sizes["heads"]
    if "kv_heads" not in sizes and not known:
        settings["kv_heads"] = sizes["heads"]
    if "tied embeddings" in words:
        settings["tied"] = True
    if "2 mats" in words or "ungated" in words:
        settings["gated"] = False
    if activation := re.search(r"\b(relu|gelu|silu)\b", words):
        settings["activation"] = activation[1]
    experts = re.search(r"(\d+) experts?,? top-?(\d+)", words)
    if experts:
        settings |= {"experts": int(experts[1]), "active": int(experts[2])}
        if int(experts[1]) >= _MANY_EXPERTS:
            settings["dispatch"] = "gather"
    if (experts or config.experts) and ("ffn" in sizes):
        settings |= _expert_widths(row, config, known=known, found=found)
    if re.search(r"llama-?4|shared expert", words) and not config.shared_ffn:
        settings["shared_ffn"] = row.counts["ffn"]
        found.assumes("beside the routed experts one that every token passes, as wide as each of them")
    if experts or config.experts:
        settings |= _room(row, found)
    return settings


def _expert_widths(row: RunRow, config: Any, *, known: bool, found: Findings) -> dict[str, Any]:
    """The row's ffn is an expert's width; the width of layers without experts is said in words."""
    expert, dense = row.counts["ffn"], re.search(r"dense ffn (\d+)", row.words)
    if known and config.expert_ffn:
        return {"expert_ffn": expert, "ffn": int(dense[1]) if dense else config.ffn}
    if dense is None:
        return {"ffn": expert}
    layers = row.counts["layers"] // 2
    found.assumes(f"{layers} dense layers in front of as many with experts, where the run alternates them")
    return {"expert_ffn": expert, "ffn": int(dense[1]), "dense_layers": layers}


def _room(row: RunRow, found: Findings) -> dict[str, Any]:
    """What an expert has room for."""
    if factor := re.search(r"capacity_factor ([\d.]+)", row.words):
        return {"capacity_factor": float(factor[1])}
    if "dropless" in row.words:
        found.assumes("dropless experts are evenly loaded: each computes its share and no more")
        return {"capacity_factor": 1.0}
    return {}


def _of_other_kind(row: RunRow, builder: Builder, found: Findings) -> RunModel | None:
    """Models whose sizes follow from their name: images, tables."""
    settings: dict[str, Any] = {}
    if builder.module == "dlrm" and (size := re.search(r"([\d.]+) ?gb\)", row.model.lower())):
        config = builder.config
        each = -(-config.tables // row.devices)  # on the devices that have most
        tables = each * row.devices
        rows = float(size[1]) * 1e9 / (tables * config.dim * _ROW_BYTES)
        settings |= {"tables": tables, "rows": max(1, round(rows))}
        found.assumes(f"equal tables of {config.dim} fp32 numbers a row that make up {size[1]} GB")
        if tables != config.tables:
            found.assumes(
                f"{tables} tables, so that each of {row.devices} devices has the {each} that some have of {config.tables}"
            )
    return RunModel(builder=builder, settings=_changes(builder, settings))


def _changes(builder: Builder, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Only what differs from the zoo's own configuration."""
    own = {field.name: getattr(builder.config, field.name) for field in dataclasses.fields(builder.config)}
    if builder.module == "gpt":
        own["ffn"] = builder.config.hidden if settings.get("dim", own["dim"]) == own["dim"] else None
    return {name: value for name, value in settings.items() if own.get(name) != value}
