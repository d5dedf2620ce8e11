"""Images with channels last: what XLA's layout assignment does for convolutions on GPUs and TPUs, done while tracing.

PyTorch's images are `[N, C, H, W]`, and so are the shapes its modules see. Matrix engines want channels innermost, and XLA
stores activations so, whatever the order of dimensions says. meshcast's own lowering takes dimensions as stored. So a
convolution computes `[N, H, W, C]` here, and its result keeps that array beside the one of torch's shape; normalisation,
pooling and elementwise operators go on with it, and the transposes that nothing reads are dropped.

Imports torch and torchax: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torchax.tensor import Tensor

from meshcast.programs.pytorch.tracing.normalisation import batch_norm

_IMAGE = 4  # dimensions of a batch of images
_TO_LAST, _TO_FIRST, _FILTER = (0, 2, 3, 1), (0, 3, 1, 2), (2, 3, 1, 0)
_ELEMENTWISE = frozenset(
    {
        torch.relu, torch.Tensor.relu, F.relu, F.relu6, F.gelu, F.silu, F.hardswish, F.hardsigmoid, F.leaky_relu, F.elu,
        F.mish, torch.sigmoid, torch.Tensor.sigmoid, torch.tanh, F.dropout, torch.add, torch.Tensor.add,
        torch.Tensor.__add__, torch.Tensor.__radd__, torch.sub, torch.Tensor.__sub__, torch.mul, torch.Tensor.mul,
        torch.Tensor.__mul__, torch.Tensor.__rmul__, torch.div, torch.Tensor.__truediv__, torch.clamp,
    }
)  # fmt: skip
_IN_PLACE = {
    torch.Tensor.add_: torch.add,
    torch.Tensor.__iadd__: torch.add,
    torch.Tensor.mul_: torch.mul,
    torch.relu_: torch.relu,
    torch.Tensor.relu_: torch.relu,
}


def images_last(function: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The operator's result with channels last, or None where it is not of images or not one of those here.

    Args:
        function: torch's function.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    first = args[0] if args else None
    if not isinstance(first, Tensor) or first.ndim != _IMAGE:
        return None
    if function in (torch.conv2d, F.conv2d):
        return _convolution(*args, **kwargs)
    if function is F.batch_norm and _stored(first) is not None:
        normalised = batch_norm(*args, **kwargs, stored=_stored(first))
        return _image(normalised, first._env)
    if function is F.max_pool2d and _stored(first) is not None:
        return _max_pool(*args, **kwargs)
    if function in _IN_PLACE:
        result = _elementwise(_IN_PLACE[function], args, kwargs)
        return None if result is None else _assigned(first, result)
    if function in _ELEMENTWISE:
        result = _elementwise(function, args, {k: v for k, v in kwargs.items() if k != "inplace"})
        return _assigned(first, result) if result is not None and kwargs.get("inplace") else result
    return None


def _stored(tensor: Any) -> Any:
    """The array with channels last behind a tensor, unless the tensor was written to since."""
    array, shown = getattr(tensor, "_channels_last", (None, None))
    return array if shown is tensor._elem else None


def _image(array: Any, environment: Any) -> Any:
    tensor = Tensor(jnp.transpose(array, _TO_FIRST), environment)
    tensor._channels_last = (array, tensor._elem)
    return tensor


def _assigned(tensor: Any, result: Any) -> Any:
    tensor._elem = result._elem
    tensor._channels_last = result._channels_last
    return tensor


def _elementwise(function: Any, args: Sequence[Any], kwargs: Any) -> Any:
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    arrays: list[Any] = [
        _stored(each) if isinstance(each, Tensor) and each.ndim == _IMAGE else None for each in tensors
    ]
    if any(array is None for array in arrays) or len({array.shape for array in arrays}) != 1:
        return None
    environment = tensors[0]._env
    inner = [Tensor(_stored(each), environment) if isinstance(each, torch.Tensor) else each for each in args]
    with environment:  # its modes are off while it handles a call
        return _image(function(*inner, **kwargs).jax(), environment)


def _convolution(
    input: Any,  # torch's own name, which callers may spell
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    stored = _stored(input)
    array = jnp.transpose(input.jax(), _TO_LAST) if stored is None else stored
    pads = padding.upper() if isinstance(padding, str) else [(pad, pad) for pad in _pair(padding)]
    result = jax.lax.conv_general_dilated(
        array,
        jnp.transpose(weight.jax().astype(array.dtype), _FILTER),
        _pair(stride),
        pads,
        rhs_dilation=_pair(dilation),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    return _image(result if bias is None else result + bias.jax().astype(result.dtype), input._env)


def _max_pool(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    if ceil_mode or return_indices or set(_pair(dilation)) != {1}:
        return None
    window, pads = _pair(kernel_size), _pair(padding)
    strides = window if stride is None or stride == [] else _pair(stride)
    result = jax.lax.reduce_window(
        _stored(input),
        -jnp.inf,
        jax.lax.max,
        (1, *window, 1),
        (1, *strides, 1),
        ((0, 0), *((pad, pad) for pad in pads), (0, 0)),
    )
    return _image(result, input._env)


def _pair(value: int | Sequence[int]) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value) * (2 if len(value) == 1 else 1)
