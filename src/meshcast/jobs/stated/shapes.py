"""From a run's model to a model of the zoo and its settings: by name where the zoo has it, by sizes otherwise.

Sizes that the run gives override the zoo's. A name that the zoo does not know is built on general layers of its kind, and then
the run must give every size.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshcast.base import MeshcastError
from meshcast.jobs.stated.activations import recomputed_layers
from meshcast.jobs.stated.findings import Findings
from meshcast.jobs.stated.frameworks import SUBMISSIONS
from meshcast.jobs.stated.latent import LATENT, doubts, is_latent, latent_settings
from meshcast.jobs.stated.run import StatedRun
from meshcast.zoo import Builder, hint, models, program_called

# General models: the kind of layers, and none of the sizes.
_DECODER, _EXPERTS, _GPT, _TABLES = "llama3-8b", "mixtral-8x7b", "gpt2-small", "dlrm-criteo"
_CROSSED = "dlrm-dcnv2"
_ENCODER, _SMALL_ENCODER = "bert-large", "bert-base"
# Families of BERT's layers, as a part of a model's name between dashes; ALBERT's layers share their weights, ColBERT ranks and
# BERT4Rec reads items, so that these are none.
_ENCODERS = frozenset({"bert", "roberta", "camembert", "biobert", "scibert", "electra"})
# Families by a part of a model's name, and the zoo's model whose layers they have; the run's sizes take the place of its own.
_OF_PARTS = {
    "vit": "vit-b16", "deit": "vit-b16", "dit": "dit-xl2", "mmdit": "sd3-medium", "flux": "flux.1-dev", "wan": "wan2.1-14b",
    "mamba2": "mamba2-2.7b", "mamba": "mamba-2.8b",
}  # fmt: skip
_TASKS = {
    "stable-diffusion": "unet-sd2", "sd": "unet-sd2", "flux": "flux.1-schnell", "flux1": "flux.1-schnell",
    "flux.1": "flux.1-schnell", "resnet": "resnet50", "image-classification": "resnet50", "bert": "bert-large",
    "dlrm-v2": "dlrm-dcnv2",
}  # fmt: skip
_FIELDS = {
    "layers": "layers", "hidden": "dim", "ffn": "ffn", "heads": "heads", "kv_heads": "kv_heads", "head_dim": "head_dim",
    "vocab": "vocab",
}  # fmt: skip
_SIZES = ("layers", "hidden", "heads", "vocab")
_LANGUAGE = ("decoder", "gpt")
_RECURRENT = ("lstm", "gnmt", "rnnt")
_TILE_ROWS = 512  # of MaxText's products for experts
_MANY_EXPERTS = 16  # from so many on, one-hot products would cost more than what they move
_VOCABULARY_STEP = 128
_ROW_BYTES = 4  # of a table's number
_ALIGNED = 8  # columns: `padding_size` of dlrm/nn/interactions.py in NVIDIA/DeepLearningExamples, in any precision
_ADAPTER_RANK = 16
# Of general layers, what a run without a word of it has none of.
_NO_EXPERTS = {"experts": 0, "expert_ffn": 0, "shared_ffn": 0, "dense_layers": 0}
_ACTIVATIONS = ("relu", "gelu", "silu", "squared_relu")
_SQUARED = frozenset({"squared-relu", "squared_relu", "relu2", "squared relu"})
# Of models over latents, by the factor that an autoencoder makes a picture smaller by (Rombach 2022; FLUX.1's has 8, too).
_LATENT = {"unet": 8, "dit": 8, "mmdit": 8}


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
    def planned(self) -> bool:
        """Whether a plan shares it out: models that read tokens and are trained layer by layer."""
        return self.builder.module in _LANGUAGE

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of a mesh that its programs are split over."""
        found: tuple[str, ...] = getattr(self.builder.family, "AXES", ("data",))
        return found

    @property
    def recurrent(self) -> bool:
        """Whether layers walk positions one after the other."""
        return self.builder.module in _RECURRENT

    @property
    def reads_sequences(self) -> bool:
        """Whether a sequence length belongs to its shape."""
        return "seq" in self.builder.overrides()


def model_of(run: StatedRun, found: Findings) -> RunModel | None:
    """The model that a run describes; what it lacks, and what is taken for granted, goes to `found`."""
    zoo = models()
    # ResNets of 1.5 have the stride in the second convolution of a block, as the zoo's do.
    plain = run.model.removesuffix("-v1.5").removesuffix("v1.5").removesuffix("-lora").removesuffix("_lora")
    called = program_called(_submitted(plain) if run.framework == SUBMISSIONS else plain)
    known = called is not None and called.name in zoo
    name = called.name if called is not None and known else _general(run)
    if name is None:
        found.lacks(
            f"a model that is known: the zoo has no {run.model!r}, and the run not the sizes of a decoder",
            of="model",
            fix=f"give a name of the zoo or all sizes: {hint(plain)}",
        )
        return None
    builder = zoo[name]
    if builder.module == "dlrm":
        settings = _changes(builder, _tables(run, builder, found))
        found.assumes(f"what the top layers read is filled up to a multiple of {_ALIGNED}, as tensor cores want it")
        settings["align"] = _ALIGNED
        if hots := run.extra.whole("hots"):
            settings["hots"] = hots
        return RunModel(builder=builder, settings=settings)
    if builder.module in _LANGUAGE and not known:
        lacking = [each for each in _SIZES if each not in run.counts]
        lacking += [] if {"ffn", "moe_ffn"} & run.counts.keys() else ["ffn"]
        if lacking:
            found.lacks(
                f"the model's {', '.join(lacking)}",
                of="model",
                fix=f"give {', '.join(lacking)}, or a model's name in place of {run.model!r}: {hint(plain)}",
            )
            return None
        found.assumes(f"{run.model}: layers as in {builder.name}, of the sizes given")
        doubts(run, found)
    fields = {field.name for field in dataclasses.fields(builder.config)}
    settings = {to: run.counts[of] for of, to in _FIELDS.items() if of in run.counts and to in fields}
    if not known and name in _OF_PARTS.values():
        found.assumes(f"{run.model}: layers as in {builder.name}, of the sizes given")
    if "mixers" in fields and "layers" in run.counts and not known:
        settings["mixers"] = run.counts["layers"]
    settings |= _filled_vocabulary(run, builder, found) if builder.module in _LANGUAGE else {}
    if builder.module == "bert" and run.framework == "tensorflow":
        settings["one_hot_types"] = True
    if builder.module == "gpt":
        settings |= {"positions": run.counts["seq"]} if "seq" in run.counts else {}
    elif builder.module == "decoder":
        settings |= _decoder_settings(run, settings, known=known, found=found)
    else:
        settings |= _picture(run, builder, fields, found)
    model = RunModel(builder=builder, settings=_changes(builder, settings))
    if model.reads_sequences and "seq" not in run.counts:
        usual = builder.overrides()["seq"]
        if model.planned or usual is None:
            found.lacks("seq", of="seq")
        else:
            found.assumes(f"seq={usual}, as {builder.name} has it")
    return model


def _submitted(name: str) -> str:
    """What MLPerf's name of a task stands for, where others mean another model by it."""
    return _TASKS.get(name.lower().replace("_", "-"), name)


def _picture(run: StatedRun, builder: Builder, fields: set[str], found: Findings) -> dict[str, int]:
    """The side of a model's pictures (`images 256x256`), in latents where it works on these; a video's patches are `seq`."""
    if "tokens" in fields and "seq" in run.counts:
        return {"tokens": run.counts["seq"]}
    side = run.extra.side
    if side is None or "image" not in fields:
        return {}
    image = max(1, side // _LATENT.get(builder.module, 1))
    try:
        builder.configured(image=image)
    except MeshcastError as error:
        found.contradicts(f"pictures as {builder.name} has them: {error.message}", of="extra", fix="use another side")
        return {}
    return {"image": image}


def _filled_vocabulary(run: StatedRun, builder: Builder, found: Findings) -> dict[str, int]:
    """A vocabulary that tensor ranks cannot share evenly is filled up, as frameworks do.

    To a multiple of 128 for each of them: Megatron's `--make-vocab-size-divisible-by`.
    """
    ranks, words = run.degree("tp"), int(run.counts.get("vocab", builder.config.vocab))
    if words % ranks == 0:
        return {}
    filled = -(-words // (_VOCABULARY_STEP * ranks)) * _VOCABULARY_STEP * ranks
    found.assumes(f"a vocabulary of {words} filled up to {filled}, which tp={ranks} shares evenly")
    return {"vocab": filled}


def _general(run: StatedRun) -> str | None:
    """The general model of a run's kind; None where its cells describe no model that reads tokens."""
    if "dcn" in run.model:
        return _CROSSED
    if run.model.startswith("dlrm"):
        return _TABLES
    parts = re.split(r"[-_ ]", run.model)
    if not _ENCODERS.isdisjoint(parts):
        return _SMALL_ENCODER if "base" in parts else _ENCODER
    if named := next((name for part, name in _OF_PARTS.items() if part in parts), None):
        return named if {"layers", "hidden"} <= run.counts.keys() else None
    if is_latent(run) and set(_SIZES) & run.counts.keys():
        return LATENT
    if "experts" in run.counts:
        return _EXPERTS
    if not set(_SIZES) & run.counts.keys():
        return None
    counts = run.counts
    heads_make_the_width = counts.get("head_dim", 0) * counts.get("heads", 0) in (0, counts.get("hidden"))
    many_heads = counts.get("kv_heads", counts.get("heads")) == counts.get("heads")
    # GPT: two products without a gate, a tied embedding, as many keys as queries.
    plain = run.flags.get("gated_ffn") is False and run.flags.get("tied_embeddings") is not False
    return _GPT if plain and heads_make_the_width and many_heads and "relu" not in run.extra.words else _DECODER


def _decoder_settings(run: StatedRun, sizes: Mapping[str, Any], *, known: bool, found: Findings) -> dict[str, Any]:
    """A decoder's optional parts, and its experts."""
    settings: dict[str, Any] = {}
    if not known:
        settings["head_dim"] = sizes.get("head_dim", sizes["dim"] // sizes["heads"])
        settings["kv_heads"] = sizes.get("kv_heads", sizes["heads"])
    for flag, name in (("tied_embeddings", "tied"), ("gated_ffn", "gated")):
        if flag in run.flags:
            settings[name] = run.flags[flag]
    words = run.extra.words | ({"squared_relu"} if _SQUARED & run.extra.words else set())
    if activation := next((word for word in _ACTIVATIONS if word in words), None):
        settings["activation"] = activation
    if window := run.extra.window:
        settings |= {"window": window[0], "global_every": window[1]}
    if {"attention_sink", "attention_sinks"} & run.extra.words:
        found.assumes("without attention sinks: a score more for each head costs nothing")
    if latent := latent_settings(run, found):
        settings |= latent
    else:
        settings |= _repeated_keys(run, {**sizes, **settings}, found)
    if again := recomputed_layers(run):
        settings["recomputed"] = again
    if rank := _adapters(run, found):
        settings["lora"] = rank
    if not known:
        settings |= _NO_EXPERTS
    if "experts" in run.counts:
        settings |= _expert_settings(run, found)
    if (extra := run.extra.whole("mtp")) and "layers" in run.counts:
        settings["layers"] = run.counts["layers"] + extra
        found.assumes(f"multi-token prediction as {extra} more layer: its second pass of the output head is left out")
    return settings


def _adapters(run: StatedRun, found: Findings) -> int:
    """The rank of adapters that are trained in the model's place (`lora=16`, `peft=lora`, a name that ends so); else 0."""
    told = run.extra.whole("lora") or run.extra.whole("lora_rank") or 0
    if told or not ("lora" in {*run.extra.words, *run.extra.values.values()} or run.model.endswith("-lora")):
        return told
    found.assumes(f"adapters of rank {_ADAPTER_RANK} beside attention's projections, as MLPerf's Llama 2 70B has them")
    return _ADAPTER_RANK


def _repeated_keys(run: StatedRun, sizes: Mapping[str, Any], found: Findings) -> dict[str, int]:
    """Heads of keys and values where there are fewer than tensor ranks, and their widths cannot be shared either.

    Each rank then has a copy of the one that its queries look at (multi-query attention; Megatron's `--num-query-groups` below
    the tensor ranks): as if there were as many heads as ranks.
    """
    ranks, keys, width = run.degree("tp"), sizes.get("kv_heads"), sizes.get("head_dim")
    if keys is None or width is None or keys >= ranks or keys * width % ranks == 0:
        return {}
    found.assumes(f"kv_heads={ranks}: each of tp={ranks} ranks has a copy of the keys of {keys}")
    return {"kv_heads": ranks}


def _expert_settings(run: StatedRun, found: Findings) -> dict[str, Any]:
    """Experts, their widths, which layers have them, and what they have room for."""
    counts = run.counts
    settings: dict[str, Any] = {"experts": counts["experts"]}
    if run.whole_experts:
        found.assumes(
            f"experts whole on a device, of tp={run.degree('tp')} ranks too, as expert_tensor_parallel_size=1 has them"
        )
        settings["whole_experts"] = True
    if "experts_per_token" in counts:
        settings["active"] = counts["experts_per_token"]
    if width := counts.get("moe_ffn", counts.get("ffn")):
        settings |= {"expert_ffn": width, "ffn": counts.get("ffn", width)}
        settings |= {"shared_ffn": counts["shared_experts"] * width} if "shared_experts" in counts else {}
    if counts["experts"] >= _MANY_EXPERTS:
        settings["dispatch"] = "gather"
    if (dense := run.extra.whole("dense_layers")) is not None:
        settings["dense_layers"] = dense
    elif (every := run.extra.experts_every) and "layers" in counts:
        dense = counts["layers"] - counts["layers"] // every
        found.assumes(f"{dense} dense layers in front of those with experts, where the run alternates them")
        settings["dense_layers"] = dense
    if factor := run.extra.number("capacity_factor"):
        settings["capacity_factor"] = factor
    elif "dropless" in run.extra.words:
        room = _whole_tiles(run) if run.framework == "maxtext" else 1.0
        more = (
            "and no more"
            if room == 1
            else f"and, in tiles of {_TILE_ROWS} rows that two of them share, {room:.2f} times that"
        )
        found.assumes(f"dropless experts are evenly loaded: each computes its share {more}")
        settings["capacity_factor"] = room
    return settings


def _whole_tiles(run: StatedRun) -> float:
    """How much more than their tokens experts compute where products go through rows in tiles, whoever they belong to.

    Tokens lie behind each other by expert, and a tile in which one expert's end and the next one's begin is computed for both:
    `M / t + G - 1` tiles of t rows for M rows of G experts (MaxText's `kernels/megablox`, `make_group_metadata`; t is 512,
    `wi_tile_fwd_batch_seq` of `configs/base.yml`). What is moved besides grows with it here, which it does not there.
    """
    counts, ranks = run.counts, max(1, run.degree("dp") * run.degree("fsdp"))
    sequences = run.mbs if run.mbs is not None else counts.get("gbs", ranks) / ranks
    rows = sequences * counts.get("seq", 0) * counts.get("experts_per_token", 1)
    held = counts["experts"] // max(1, run.degree("ep"))
    return 1 + (held - 1) * _TILE_ROWS / rows if rows else 1.0


def _tables(run: StatedRun, builder: Builder, found: Findings) -> dict[str, Any]:
    """Equal tables in place of a recommender's own, as many on each device as the fullest one has."""
    config = builder.config
    size = next((word for word in (*run.extra.words, *run.extra.values.values()) if " gb" in word), "")
    said = [float(part) for part in size.replace(",", " ").split() if part.replace(".", "", 1).isdigit()]
    if not said:
        return {}
    each = -(-config.tables // run.devices)
    tables = each * run.devices
    found.assumes(f"equal tables of {config.dim} fp32 numbers a row that make up {said[-1]:g} GB")
    if tables != config.tables:
        found.assumes(
            f"{tables} tables, so that each of {run.devices} devices has the {each} that some have of {config.tables}"
        )
    return {"tables": tables, "rows": max(1, round(said[-1] * 1e9 / (tables * config.dim * _ROW_BYTES)))}


def _changes(builder: Builder, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Only what differs from the zoo's own configuration."""
    own = {field.name: getattr(builder.config, field.name) for field in dataclasses.fields(builder.config)}
    if builder.module == "gpt":
        own["ffn"] = builder.config.hidden if settings.get("dim", own["dim"]) == own["dim"] else None
    return {name: value for name, value in settings.items() if own.get(name) != value}
