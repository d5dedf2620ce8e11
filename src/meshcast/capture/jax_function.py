"""Programs from JAX functions: traced with shapes and shardings over an abstract mesh, no device, no weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshcast.capture.program import Program, from_module
from meshcast.errors import InfeasibleError, InputError, MeshcastError, UsageError


def capture(
    fn: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    platform: str = "cuda",
    options: Mapping[str, Any] | None = None,
) -> Program:
    """The program `jax.jit(fn, **options)` runs on `args`, for any mesh, without devices.

    Args:
        fn: A function, or one already under `jax.jit`.
        *args: Pytrees of `jax.ShapeDtypeStruct` (or arrays), with `sharding=NamedSharding(AbstractMesh(...), P(...))`.
        name: What to call it; the function's own name by default.
        platform: What to lower for: `cuda`, `rocm`, `tpu` or `cpu`.
        options: `jax.jit` options such as `donate_argnums`.
    """
    import jax

    label = name or getattr(fn, "__name__", "program")
    jitted: Any = fn if hasattr(fn, "trace") and not options else jax.jit(fn, **dict(options or {}))
    try:
        lowered = jitted.trace(*args).lower(lowering_platforms=(platform,))
        module = lowered.compiler_ir("stablehlo")
    except MeshcastError:
        raise
    except Exception as error:  # the user's own function raised while being traced
        raise _trace_error(error, label) from error
    return from_module(module, name=label, source=f"jax:{label}", names=_argument_names(lowered, jitted, args))


def from_lowered(lowered: Any, *, name: str = "program") -> Program:
    """The program of a `jax.stages.Lowered`."""
    return from_module(lowered.compiler_ir("stablehlo"), name=name, source=f"jax:{name}")


def _argument_names(lowered: Any, jitted: Any, args: Sequence[Any]) -> tuple[str, ...] | None:
    """Names such as `params['wq']` for the arguments that lowering kept, from the function's own signature."""
    import inspect

    import jax

    try:
        parameters = list(inspect.signature(jitted).parameters)
    except (TypeError, ValueError):
        return None
    names: list[str] = []
    for position, arg in enumerate(args):
        head = parameters[position] if position < len(parameters) else f"arg{position}"
        paths, _ = jax.tree_util.tree_flatten_with_path(arg)
        names += [head + jax.tree_util.keystr(path) for path, _ in paths]
    # Lowering drops arguments nothing reads; only its internals say which.
    kept = getattr(getattr(lowered, "_lowering", None), "compile_args", {}).get("kept_var_idx")
    if kept is not None:
        names = [names[index] for index in sorted(kept) if index < len(names)]
    return tuple(names)


def _trace_error(error: Exception, label: str) -> MeshcastError:
    text = str(error).strip().split("\n")[0][:600]
    if re.search(r"divisible|evenly divide|not divide", str(error)):
        return InfeasibleError(
            f"the mesh does not divide the program: {text}", where=label, fix="choose axis sizes that divide the sharded dimensions"
        )
    if isinstance(error, (TypeError, NameError)):
        return UsageError(f"{type(error).__name__} while tracing: {text}", where=label, fix="check the function and its arguments")
    return InputError(f"{type(error).__name__} while tracing: {text}", where=label, fix="make the function trace under jax.jit first")
