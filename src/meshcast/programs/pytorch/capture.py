"""`capture_torch`: the one call that makes a `Program` of a PyTorch object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from meshcast.base import UsageError
from meshcast.programs.annotations import bring_over_shardings
from meshcast.programs.jax_function import lowered_module
from meshcast.programs.program import Program, from_module
from meshcast.programs.pytorch.library import require_torch
from meshcast.programs.pytorch.options import TorchOptions

Kernels = Literal["xla", "eager", "compile"]


def capture_torch(
    module: Callable[..., Any],
    args: Sequence[Any] = (),
    options: TorchOptions | Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    platform: str = "cuda",
    kernels: Kernels = "xla",
) -> Program:
    """The program of a module's forward pass, of a training step of it, or of a function of tensors.

    Args:
        module: An `nn.Module`, on the meta device or with weights, which are not read; or a function of tensors.
        args: Positional arguments of the call: tensors of any device (shape and dtype count), or pytrees with them.
        options: Whether it is trained, in which precision and over which mesh.
        name: What to call it; the class or function's own name by default.
        platform: What to lower for: `cuda`, `rocm`, `tpu` or `cpu`.
        kernels: Whose kernels the program is made of: those that XLA would compile, or on one device of CUDA PyTorch's own,
            `eager` or `compile`d.
    """
    require_torch()
    from meshcast.programs.pytorch.mistakes import explained
    from meshcast.programs.pytorch.tracing.environment import quiet
    from meshcast.programs.pytorch.tracing.traced_module import Tracing
    from meshcast.programs.pytorch.tracing.wide_reductions import widen_reduced_products

    label = str(name or getattr(module, "__name__", type(module).__name__))
    if not callable(module):
        raise UsageError(f"{type(module).__name__} cannot be called", where=label, fix="give a module or a function")
    if not isinstance(args, (tuple, list)):
        raise UsageError(
            f"args is a tuple, not {type(args).__name__}", where=label, fix="write (tensor,) for one tensor"
        )
    chosen = TorchOptions.of(options, where=label)
    unrecorded = ""
    if kernels != "xla":
        from meshcast.programs.pytorch.own_kernels import captured, why_not

        if not (unrecorded := why_not(module, tuple(args), chosen, platform)):
            try:
                return captured(module, tuple(args), chosen, label=label, compiled=kernels == "compile")
            except Exception as error:  # the user's own module raised while being run
                raise explained(error, label, module) from error
    try:
        tracing = Tracing(module, tuple(args), chosen, label=label, platform=platform)
        function, arguments, jit_options = tracing.program()
        with quiet():
            lowered = lowered_module(function, arguments, platform=platform, options=jit_options)
    except Exception as error:  # the user's own module raised while being traced
        raise explained(error, label, module) from error
    warnings = list(tracing.warnings())
    if unrecorded:
        warnings.append(f"kernels are modelled on XLA's program, not recorded from PyTorch: {unrecorded}")
    if tracing.reduces_wider and (narrow := widen_reduced_products(lowered)):
        warnings.append(
            f"{narrow} gradients that are no products are reduced in FSDP's param_dtype, not in its reduce_dtype"
        )
    bring_over_shardings(lowered, where=label)
    note = f" ({tracing.attention.note})" if tracing.attention.note else ""
    program = from_module(lowered, name=label, source=f"torch:{label}{note}")
    return replace(program, notes=tuple(warnings), facts=tuple(tracing.facts()))
