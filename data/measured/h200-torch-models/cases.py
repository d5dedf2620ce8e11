"""Models of torchvision and transformers, without weights, none of which PyTorch's kernel rules were made with.

`NAME()` returns `(module, args, options)` as `meshcast predict cases.py:NAME` takes it; `build(NAME, device)` the same module and
inputs for a run (`benchmarks/torch_models.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

try:
    import torchvision.models as tv
except (
    RuntimeError
):  # built for CUDA, beside a CPU build of torch: its own operators are absent, and no model here calls them
    import sys

    for loaded in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[loaded]
    _register = torch.library.register_fake

    def _unless_torchvision(op: Any, *args: Any, **options: Any) -> Any:
        return (lambda f: f) if str(op).startswith("torchvision::") else _register(op, *args, **options)

    torch.library.register_fake = _unless_torchvision  # type: ignore[assignment]
    import torchvision.models as tv

    torch.library.register_fake = _register


@dataclass(frozen=True)
class Drawn:
    """An input: its shape, and for integers the number below which they are drawn."""

    shape: tuple[int, ...]
    below: int | None = None

    def on(self, device: str, dtype: torch.dtype, seed: int) -> torch.Tensor:
        """The tensor: without values on the meta device."""
        if device == "meta":
            return torch.empty(self.shape, dtype=dtype if self.below is None else torch.long, device="meta")
        drawn = torch.Generator().manual_seed(seed)
        if self.below is not None:
            return torch.randint(0, self.below, self.shape, generator=drawn).to(device)
        return torch.randn(self.shape, generator=drawn).to(device=device, dtype=dtype)


@dataclass(frozen=True)
class Case:
    """A model with its inputs, and how a step of it runs."""

    make: Callable[[], torch.nn.Module]
    inputs: tuple[Drawn, ...] = ()
    named: dict[str, Drawn] = field(default_factory=dict)
    flags: dict[str, bool] = field(default_factory=dict)  # further keyword arguments of the module
    targets: tuple[Drawn, ...] = ()
    train: bool = True
    optimizer: str = "adamw"
    autocast: str | None = None
    dtype: torch.dtype = torch.float32


class Answer(torch.nn.Module):
    """A module whose result is one tensor: its loss, or the first of its results."""

    def __init__(self, module: torch.nn.Module, flags: dict[str, bool], *, loss: bool) -> None:
        """Wraps it."""
        super().__init__()
        self.module, self.flags, self.loss = module, flags, loss

    def forward(self, *args: Any, **named: Any) -> Any:
        """The tensor."""
        found = self.module(*args, **named, **self.flags)
        if isinstance(found, torch.Tensor):
            return found
        return found.loss if self.loss else found[0]


def images(batch: int, size: int = 224) -> Drawn:
    """Pictures."""
    return Drawn((batch, 3, size, size))


def vision(make: Callable[..., torch.nn.Module], batch: int, **how: Any) -> Case:
    """A classifier of torchvision."""
    classes = (Drawn((batch,), 1000),) if how.get("train", True) else ()
    return Case(make=lambda: make(weights=None), inputs=(images(batch),), targets=classes, **how)


def language(make: str, config: dict[str, Any], batch: int, length: int, *, labels: bool, **how: Any) -> Case:
    """A language model of transformers by its class and configuration."""
    tokens = Drawn((batch, length), config["vocab_size"])
    named = {"input_ids": tokens, **({"labels": tokens} if labels else {})}
    return Case(make=lambda: transformer(make, config), named=named, train=labels, **how)


def transformer(name: str, config: dict[str, Any]) -> torch.nn.Module:
    """A model of transformers from a configuration alone."""
    import transformers

    kind = getattr(transformers, name)
    made: torch.nn.Module = kind(kind.config_class(**config))
    return made


BF16 = torch.bfloat16
AMP = {"autocast": "bfloat16"}
CASES: dict[str, Case] = {
    "tv_regnet_y_3_2gf_train_amp": vision(tv.regnet_y_3_2gf, 64, optimizer="sgd", **AMP),
    "tv_efficientnet_v2_s_infer_bf16": vision(tv.efficientnet_v2_s, 64, train=False, dtype=BF16),
    "tv_vit_b_16_train_amp": vision(tv.vit_b_16, 64, **AMP),
    "tv_densenet121_train_f32": vision(tv.densenet121, 64, optimizer="sgd"),
    "tv_vgg16_infer_f32": vision(tv.vgg16, 64, train=False),
    "tv_efficientnet_b0_train_amp": vision(tv.efficientnet_b0, 128, optimizer="sgd", **AMP),
    "hf_gpt2_medium_train_amp": language(
        "GPT2LMHeadModel",
        {"vocab_size": 50257, "n_embd": 1024, "n_layer": 24, "n_head": 16, "use_cache": False},
        8,
        1024,
        labels=True,
        **AMP,
    ),
    "hf_gemma3_1b_infer_bf16": language(
        "Gemma3ForCausalLM",
        {"vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26,
         "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512, "use_cache": False},
        4,
        1024,
        labels=False,
        dtype=BF16,
    ),
    "hf_mixtral_small_train_bf16": language(
        "MixtralForCausalLM",
        {"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
         "num_attention_heads": 16, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
         "use_cache": False},
        4,
        1024,
        labels=True,
        dtype=BF16,
    ),
    "hf_roberta_base_infer_f16": language(
        "RobertaForMaskedLM", {"vocab_size": 50265, "max_position_embeddings": 514}, 64, 256, labels=False,
        dtype=torch.float16,
    ),
    "hf_gpt_neox_410m_infer_bf16": language(
        "GPTNeoXForCausalLM",
        {"vocab_size": 50304, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
         "num_attention_heads": 16, "use_cache": False},
        4,
        2048,
        labels=False,
        dtype=BF16,
    ),
    "hf_whisper_small_train_amp": Case(
        make=lambda: transformer(
            "WhisperForConditionalGeneration",
            {"d_model": 768, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12,
             "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "use_cache": False},
        ),
        named={"input_features": Drawn((8, 80, 3000)), "labels": Drawn((8, 256), 51864)},
        **AMP,
    ),
    "hf_clip_vit_b32_train_amp": Case(
        make=lambda: transformer("CLIPModel", {}),
        named={"input_ids": Drawn((128, 77), 49000), "pixel_values": images(128)},
        flags={"return_loss": True},
        **AMP,
    ),
    "hf_wav2vec2_base_infer_f32": Case(
        make=lambda: transformer("Wav2Vec2Model", {}), inputs=(Drawn((8, 160000)),), train=False
    ),
}  # fmt: skip


def build(name: str, device: str) -> tuple[torch.nn.Module, list[torch.Tensor], dict[str, torch.Tensor], list[torch.Tensor]]:  # fmt: skip
    """The module on the device, its arguments by place and by name, and its targets."""
    case = CASES[name]
    try:
        with torch.device(device):
            module = case.make()
    except NotImplementedError:  # some read numbers while they are made, which the meta device has not
        module = case.make().to(device)
    module = module.to(case.dtype).train(case.train)
    if not name.startswith("tv_"):
        module = Answer(module, case.flags, loss=case.train)
        module.train(case.train)
    args = [drawn.on(device, case.dtype, seed) for seed, drawn in enumerate(case.inputs)]
    named = {key: drawn.on(device, case.dtype, 50 + seed) for seed, (key, drawn) in enumerate(case.named.items())}
    targets = [drawn.on(device, case.dtype, 90 + seed) for seed, drawn in enumerate(case.targets)]
    return module, args, named, targets


def for_meshcast(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
    """What `predict` takes."""
    case = CASES[name]
    module, args, named, targets = build(name, "meta")
    options: dict[str, Any] = {"kwargs": named} if named else {}
    if case.train:
        options |= {"train": True, "optimizer": case.optimizer}
        if targets:
            options |= {"loss": F.cross_entropy, "targets": tuple(targets)}
        if case.autocast:
            options["autocast"] = case.autocast
    return module, tuple(args), options


def __getattr__(name: str) -> Callable[[], Any]:
    """A case as a function of the module."""
    if name in CASES:
        return lambda: for_meshcast(name)
    raise AttributeError(name)
