"""Programs from JAX functions: traced with shapes and shardings over an abstract mesh, no device, no weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshcast.base import InfeasibleError, InputError, MeshcastError, UnsupportedError, UsageError
from meshcast.programs.annotations import bring_over_shardings
from meshcast.programs.gpu_questions import answered
from meshcast.programs.program import Program, from_module
from meshcast.programs.uneven import even_parts


def capture(
    fn: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    platform: str = "cuda",
    options: Mapping[str, Any] | None = None,
    uneven: bool = False,
) -> Program:
    """The program `jax.jit(fn, **options)` runs on `args`, for any mesh, without devices.

    Args:
        fn: A function, or one already under `jax.jit`.
        *args: Pytrees of `jax.ShapeDtypeStruct` (or arrays), with `sharding=NamedSharding(AbstractMesh(...), P(...))`.
        name: What to call it; the function's own name by default.
        platform: What to lower for: `cuda`, `rocm`, `tpu` or `cpu`.
        options: `jax.jit` options such as `donate_argnums`.
        uneven: Whether arguments may be in shares that their mesh does not divide them into, which JAX refuses.
    """
    label = str(name or getattr(fn, "__name__", "program"))
    try:
        if uneven:
            args, options, mark = even_parts(fn, args, options or {})
        module = lowered_module(fn, args, platform=platform, options=options)
        if uneven:
            mark(module)
    except MeshcastError:
        raise
    except Exception as error:  # the user's own function raised while being traced
        raise _trace_error(error, label) from error
    bring_over_shardings(module, where=label)
    return from_module(module, name=label, source=f"jax:{label}")


def lowered_module(
    fn: Callable[..., Any], args: Sequence[Any], *, platform: str, options: Mapping[str, Any] | None = None
) -> Any:
    """The StableHLO module of `jax.jit(fn, **options)` on `args`; raises whatever tracing the function raises."""
    import jax

    jitted: Any = fn if hasattr(fn, "trace") and not options else jax.jit(fn, **dict(options or {}))
    with answered(platform):
        return jitted.trace(*args).lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")


def from_lowered(lowered: Any, *, name: str = "program") -> Program:
    """The program of a `jax.stages.Lowered`."""
    module = lowered.compiler_ir("stablehlo")
    bring_over_shardings(module, where=f"jax:{name}")
    return from_module(module, name=name, source=f"jax:{name}")


# What JAX says of a kernel that the chosen platform has not, and what helps.
_CUDNN = "cuDNN runs on NVIDIA's GPUs: predict on one, or leave implementation='cudnn' out"
_ELSEWHERE = {
    "cuDNN is not detected": _CUDNN,
    "primitive 'dot_product_attention": _CUDNN,  # traced for an NVIDIA GPU before, and kept by JAX
    "MLIR translation rule for primitive": "JAX lowers it for other platforms alone: predict on a device of one of those",
    "Compiler params for platform": "the kernel was written for another platform: predict on a device of that one",
    "Cannot lower pallas_call on platform": "predict on a device that the kernel was written for; Pallas without "
    "compiler_params needs absl-py installed beside JAX for GPUs",
}


def _trace_error(error: Exception, label: str) -> MeshcastError:
    text = str(error).strip().split("\n")[0][:600]
    if re.search(r"divisible|evenly divide", str(error)) and re.search(r"shard|mesh", str(error), re.IGNORECASE):
        return InfeasibleError(
            f"the mesh does not divide the program: {text}",
            where=label,
            fix="choose axis sizes that divide the sharded dimensions",
        )
    said = f"{type(error).__name__} while tracing: {text}"
    for part, fix in _ELSEWHERE.items():
        if part in str(error):
            return UnsupportedError(said, where=label, fix=fix)
    if isinstance(error, (TypeError, NameError)):
        return UsageError(said, where=label, fix="check the function and its arguments")
    return InputError(said, where=label, fix="make the function trace under jax.jit first")
