"""What a PyTorch object does not say of itself: whether it is trained, in which precision, over which mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from meshcast.base import UsageError, nearest

Remat = Literal["full", "selective"]
AttentionKind = Literal["auto", "flash", "math"]
OPTIMIZERS = ("adamw", "sgd")


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOptions:
    """How a module is captured; the third of `(module, args, options)` is a dict of these fields."""

    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `forward`."""
    train: bool = False
    """A whole training step instead of the forward pass."""
    loss: Callable[..., Any] | None = None
    """`loss(output, *targets)`; without it the output is the loss, or has it under `loss`."""
    targets: Sequence[Any] = ()
    """What the loss takes beside the output."""
    optimizer: Any = "adamw"
    """"adamw", "sgd", or a `torch.optim` optimizer of these kinds, whose hyperparameters are taken."""
    clip_grad_norm: float | None = None
    """The norm that all gradients together are clipped to."""
    compute_dtype: Any = None
    """What parameters and floating-point inputs are cast to before the forward pass, as FSDP's mixed precision does."""
    autocast: Any = None
    """What `torch.autocast` casts the operands of matrix products and convolutions to, operator by operator."""
    remat: str | Sequence[str] = ()
    """Names of submodules, with wildcards (`layers.*`), whose activations the backward pass computes again."""
    remat_policy: Remat = "full"
    """What such a submodule keeps: only its inputs, or its products with weights too, as plans call it."""
    donate: bool = True
    """Parameters, optimizer state and buffers are overwritten in place, as PyTorch does."""
    attention: AttentionKind = "auto"
    """What `scaled_dot_product_attention` becomes: a fused call, plain products, or fused where it can be."""
    mesh: Mapping[str, int] | None = None
    """Axes and sizes, outermost first; taken from DTensors where there are any."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Placements by parameter name with wildcards: `{"layers.*.up.weight": {"tp": 0}}`; the first match counts."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Placements of arguments by place or name, likewise: `{"0": {"dp": 0, "cp": 1}}`."""
    batch_axes: str | Sequence[str] | None = None
    """Axes that split dimension 0 of every input; by default those of FSDP, and those that split nothing else."""

    def __post_init__(self) -> None:
        for name, choices in (("remat_policy", get_args(Remat)), ("attention", get_args(AttentionKind))):
            if getattr(self, name) not in choices:
                raise UsageError(f"{name} is one of {', '.join(choices)}, not {getattr(self, name)!r}", where="options")
        for name in ("train", "donate"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} is True or False, not {getattr(self, name)!r}", where="options")
        if isinstance(self.optimizer, str) and self.optimizer not in OPTIMIZERS:
            raise UsageError(
                f"no optimizer {self.optimizer!r} here", where="options", fix=nearest(self.optimizer, OPTIMIZERS)
            )
        if not self.train:
            given = [name for name in ("loss", "targets", "clip_grad_norm", "remat") if getattr(self, name)]
            if given:
                raise UsageError(f"{given[0]} is for training", where="options", fix="add train=True, or leave it out")
        if self.compute_dtype is not None and self.autocast is not None:
            raise UsageError(
                "compute_dtype and autocast are two ways to say one thing", where="options", fix="give one of them"
            )

    @classmethod
    def of(cls, options: TorchOptions | Mapping[str, Any] | None, *, where: str) -> TorchOptions:
        """Options from a dict, its names checked."""
        if options is None or isinstance(options, TorchOptions):
            return options or cls()
        known = {field.name for field in dataclasses.fields(cls)}
        for name in options:
            if name not in known:
                raise UsageError(f"no option {name!r} for PyTorch modules", where=where, fix=nearest(str(name), known))
        return cls(**options)


def names(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name or several as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value or ())
