"""Where a PyTorch program is traced: torch's operators on JAX's tracers, constants taken in, shapes and dtypes checked.

Imports torch and torchax: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import torch
import torchax.amp
from torch.utils import _mode_utils as mode_utils
from torch.utils import _pytree as pytree
from torchax.ops.mappings import TORCH_DTYPE_TO_JAX
from torchax.tensor import Environment, OperatorNotFound, Tensor, XLADispatchMode
from torchax.view import View

from meshcast.base import MeshcastError, UnsupportedError, UsageError
from meshcast.programs.pytorch.library import removed_operators_named
from meshcast.programs.pytorch.mistakes import DATA_DEPENDENT, OperandError
from meshcast.programs.pytorch.recording.autocast_policies import autocast_operands
from meshcast.programs.pytorch.tracing.autocast import autocast_as_written
from meshcast.programs.pytorch.tracing.channels_last import images_last
from meshcast.programs.pytorch.tracing.operators import register
from meshcast.programs.pytorch.tracing.python_functions import body_of
from meshcast.programs.stand_ins import standing_in

# Without 64-bit mode JAX's integers have 32 bits; torch counts and indexes with 64.
_NARROW = {torch.int64: torch.int32, torch.uint64: torch.uint32}
_DRAWS = frozenset({torch.rand, torch.randn, torch.randint})
_WIDE_FLOATS = (torch.float64, torch.complex128)


class _NamedDispatch(XLADispatchMode):  # type: ignore[misc]
    """torchax's mode, which names operators of other libraries (custom ones, collectives) instead of running them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ours = any(isinstance(each, (Tensor, View)) for each in pytree.tree_leaves((args, kwargs)))
        if ours and getattr(func, "namespace", "aten") not in (
            "aten",
            "prim",
            "_c10d_functional",
            "torchvision",
            "xla",
        ):
            raise OperatorNotFound(f"Operator with name {func.name()} has no lowering")
        return super().__torch_dispatch__(func, types, args, kwargs)


def _refused_by_torch(func: Any, args: Any, kwargs: Any) -> str | None:
    """What torch itself says to such operands, tried on the meta device; None where it takes them."""

    def without_values(tensor: Any) -> Any:
        return torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device="meta")

    with mode_utils.no_dispatch(), torch._C.DisableTorchFunction(), torch.device("meta"):
        args, kwargs = pytree.tree_map_only(torch.Tensor, without_values, (args, kwargs))
        try:
            func(*args, **kwargs)
        except NotImplementedError:
            return None  # no kernel for the meta device: nothing is known of the operands
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            return str(error).split("\n")[0]
    return None


def _is_scalar(args: Any, kwargs: Any) -> bool:
    """Whether a constructor makes one number."""
    size = kwargs.get("size", next((each for each in reversed(args) if isinstance(each, (tuple, list))), None))
    return size is not None and len(size) == 0


class TracingEnvironment(Environment):  # type: ignore[misc]
    """torchax's environment, in which tensors with values that a module holds on to are constants of the program."""

    def __init__(self) -> None:
        super().__init__()
        self._dispatch_mode = _NamedDispatch(self)
        self._bodies: list[Any] = []  # functions that are being taken apart
        self._host_draws = torch.Generator().manual_seed(0)
        self.autocast_types: dict[Any, None] = {}  # that operators ran under, in the order in which they were met

    def t2j_iso(self, torchtensors: Any) -> Any:
        """The JAX arrays of torchax tensors; other tensors become constants."""
        return pytree.tree_map_only(torch.Tensor, self._as_array, torchtensors)

    def dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """One operator; under autocast its operands are cast as CUDA's autocast casts them."""
        kwargs = kwargs or {}
        if func in _DRAWS and _is_scalar(args, kwargs):
            with mode_utils.no_dispatch(), torch._C.DisableTorchFunction():
                return func(*args, **{**kwargs, "device": "cpu", "generator": self._host_draws})
        if self.param.autocast_dtype is not None:
            self.autocast_types[self.param.autocast_dtype] = None
            with self:
                args, kwargs = autocast_operands(func, args, kwargs, self.param.autocast_dtype)
        try:
            image = images_last(func, args, kwargs)
            return super().dispatch(func, types, args, kwargs) if image is None else image
        except OperatorNotFound:
            if isinstance(func, torch._ops.OpOverload):
                raise
            return self._taken_apart(func, args, kwargs)
        except (MeshcastError, OperandError):
            raise
        except Exception as error:  # JAX's words for what may be the user's mistake
            needs_values = type(error).__name__ in DATA_DEPENDENT
            said = None if needs_values else _refused_by_torch(func, args, kwargs)
            if said is None:
                raise
            raise OperandError(f"{getattr(func, '__name__', func)}: {said}") from error

    def _taken_apart(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A function that torchax does not have as a whole, by what it calls; its operands are cast already."""
        body = body_of(func)
        if body is None or func in self._bodies:  # a method in Python that calls the one of C++, which has its name
            return func(*args, **kwargs)  # as operators of ATen
        self._bodies.append(func)
        try:
            with self, torch.device("jax"):
                return body(*args, **kwargs)
        finally:
            self._bodies.pop()

    def _as_array(self, value: Any) -> Any:
        if isinstance(value, (Tensor, View)):
            return value.jax()
        if value.device.type == "meta" or type(value).__name__ == "FakeTensor":
            raise UsageError(
                f"a tensor of shape {tuple(value.shape)} without values is neither an argument, a parameter nor a buffer",
                fix="register it with register_buffer, make it inside forward(), or let the function refer to its module itself",
            )
        with mode_utils.no_dispatch(), torch._C.DisableTorchFunction():
            return value.item() if value.dim() == 0 else jnp.asarray(self.t2j_copy(value.detach()))


def make_environment(attention: Callable[..., Any]) -> Any:
    """A fresh environment with attention as given; a random key of its own, so that captures are alike."""
    with removed_operators_named():
        environment = TracingEnvironment()
    environment.manual_seed(0)
    register(environment, attention)
    return environment


@contextmanager
def tracing(environment: Any, *, autocast: Any = None) -> Iterator[None]:
    """While a module's code runs: its operators are JAX's, and what it makes lives where the arguments do."""
    with (
        quiet(),
        environment.override_property(autocast_dtype=autocast, prng=environment.prng_key),
        environment,
        autocast_as_written(environment),
        standing_in(torchax.amp, autocast_policy={}),  # `recording.autocast_policies` stands for it
        # An operator that JAX's tracers do not have, in place of calls that they do (`recording.self_attention`).
        standing_in(torch.backends.mha, get_fastpath_enabled=lambda: False),
        torch.device("jax"),
    ):
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """JAX's and torchax's remarks on 64-bit integers, which are expected here, are not shown."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*requested dtype.*is not available")
        warnings.filterwarnings("ignore", message=".*truncated to dtype.*")
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield


def array_dtype(dtype: Any, *, where: str) -> Any:
    """JAX's dtype for torch's."""
    if dtype in _WIDE_FLOATS:
        raise UnsupportedError(
            f"{dtype} is not modelled", where=where, fix="convert with .float(), .half() or .bfloat16() first"
        )
    narrow = _NARROW.get(dtype, dtype)
    if narrow not in TORCH_DTYPE_TO_JAX:
        raise UnsupportedError(f"{dtype} has no counterpart in StableHLO", where=where, fix="convert it first")
    return TORCH_DTYPE_TO_JAX[narrow]


def floating_dtype(dtype: Any, *, where: str) -> Any:
    """JAX's dtype for a floating-point dtype given as torch's or by name."""
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UsageError(
            f"{dtype!r} is not a floating-point dtype", where=where, fix='write "bfloat16" or torch.float16'
        )
    return array_dtype(found, where=where)


def wrapped(environment: Any, arrays: Any) -> Any:
    """JAX arrays in a pytree as torch tensors."""
    return pytree.tree_map_only((jax.Array, jax.core.Tracer), lambda array: Tensor(array, environment), arrays)


def unwrapped(environment: Any, tensors: Any) -> Any:
    """Torch tensors in a pytree of torch's as JAX arrays in a list, which is a pytree of JAX's."""
    leaves = pytree.tree_leaves(tensors)
    return [environment.t2j_iso(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
