"""What PyTorch decides for CUDA before an operator runs, put in place of what it decides for the CPU while a step is recorded.

- autocast: the lists of `ATen/autocast_mode.h` for CUDA, with the cache of weights that are cast once a region;
- `scaled_dot_product_attention`: the first kernel that takes the operands (`choose_attention`);
- dropout: one fused kernel, which keeps its mask (`ATen/native/Dropout.cpp`);
- `nn.MultiheadAttention` in inference: its own operator (`self_attention`).

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from meshcast.programs.pytorch.recording.autocast_policies import autocast_policy
from meshcast.programs.pytorch.recording.self_attention import native_self_attention
from meshcast.programs.stand_ins import standing_in

aten = torch.ops.aten


@contextmanager
def as_on_cuda(*, compiled: bool = False) -> Iterator[Casts]:
    """While a step is recorded: see above; gives autocast's state.

    Args:
        compiled: Whether the module is asked as Dynamo asks it, which `transformers` looks at to keep masks that it would skip.
    """
    library = torch.library.Library("aten", "IMPL")
    casts = Casts()
    with ExitStack() as stack:
        stack.callback(library._destroy)
        for packet, overload in _overloads(autocast_policy()):
            casts.register(library, packet, overload)
        for name in _of_cpu_alone(autocast_policy()):
            library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU", allow_override=True)
        for key in ("CPU", "AutogradCPU"):
            library.impl("scaled_dot_product_attention", _attention, key, allow_override=True)
            library.impl("dropout", _dropout, key, allow_override=True)
            library.impl("_native_multi_head_attention", _self_attention, key, allow_override=True)
        stack.enter_context(_regions(casts))
        asked = sys.modules.get("transformers.utils.import_utils")
        if asked is not None and hasattr(asked, "is_fake_tensor"):
            stack.enter_context(standing_in(asked, is_fake_tensor=lambda _: compiled))
        if compiled:  # experts ask by a name of their own
            for each in (asked, sys.modules.get("transformers.integrations.moe")):
                if hasattr(each, "is_torchdynamo_compiling"):
                    stack.enter_context(standing_in(each, is_torchdynamo_compiling=lambda: True))
        # Until 2.14 Dynamo answers this with yes whatever it traces (pytorch#176499), and `transformers` keeps every mask.
        if compiled and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14):
            stack.enter_context(standing_in(torch.compiler, is_exporting=lambda: True))
        yield casts


def _overloads(policy: dict[str, str]) -> Iterator[tuple[str, Any]]:
    for name in policy:
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            each = getattr(packet, overload)
            if not any(argument.is_out for argument in each._schema.arguments):
                yield name, each


def _of_cpu_alone(policy: dict[str, str]) -> Iterator[str]:
    """Operators that autocast casts for the CPU and not for CUDA."""
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        own = space == "aten" and rest.partition(".")[0] not in policy
        if own and torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCPU"):
            yield rest


class Casts:
    """Autocast's kernels, and the weights that a region has cast."""

    def __init__(self) -> None:
        self.weights: dict[int, tuple[Any, Any]] = {}
        self.regions: list[bool] = []  # that are entered, and whether they cast
        self._policy = autocast_policy()
        self._off = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def register(self, library: Any, name: str, overload: Any) -> None:
        """Puts CUDA's way to cast an operator's operands in place."""
        how = self._policy[name]

        @functools.wraps(overload)
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(self._off):
                args, kwargs = self.cast(how, overload, args, kwargs)
                return overload(*args, **kwargs)

        try:
            library.impl(overload, kernel, "AutocastCPU", allow_override=True)
        except RuntimeError:  # an overload that this release has no kernel slot for
            return

    def cast(self, how: str, overload: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Operands as a list of autocast wants them."""
        lower = torch.get_autocast_dtype("cpu")
        floats = {leaf.dtype for leaf in pytree.tree_leaves((args, kwargs)) if _floating(leaf)}
        if how == "result":
            names = [argument.name for argument in overload._schema.arguments]
            told = dict(zip(names, args, strict=False)) | kwargs
            if "dtype" in names and told.get("dtype") is None and floats & {torch.bfloat16, torch.float16}:
                args = tuple(value for name, value in zip(names, args, strict=False) if name != "dtype")
                return args, {**kwargs, "dtype": torch.float32}
            return args, kwargs
        if how == "widest" and len(floats) < 2:
            return args, kwargs
        wanted = lower if how == "lower" else torch.float32
        cast = pytree.tree_map(lambda leaf: self._cast_one(leaf, wanted) if _floating(leaf) else leaf, (args, kwargs))
        return cast[0], cast[1]

    def _cast_one(self, tensor: Any, wanted: Any) -> Any:
        if tensor.dtype == wanted or tensor.dtype == torch.float64:
            return tensor
        weight = tensor.is_leaf and tensor.requires_grad and wanted != torch.float32 and tensor._base is None
        if not weight:
            return tensor.to(wanted)
        if id(tensor) not in self.weights:
            self.weights[id(tensor)] = tensor, tensor.to(wanted)
        return self.weights[id(tensor)][1]


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@contextmanager
def _regions(casts: Casts) -> Iterator[None]:
    """Regions for CUDA act on the CPU's tensors; the last one to be left forgets the weights that were cast."""
    region = torch.amp.autocast_mode.autocast
    begin, enter, leave = region.__init__, region.__enter__, region.__exit__

    def made(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        lower = dtype or (torch.get_autocast_dtype("cuda") if device_type == "cuda" else torch.bfloat16)
        begin(self, "cpu", dtype=lower, enabled=enabled, cache_enabled=cache_enabled)
        self._enabled = enabled

    def entered(self: Any) -> Any:
        casts.regions.append(bool(self._enabled))
        return enter(self)

    def left(self: Any, *error: Any) -> Any:
        casts.regions.pop()
        if not casts.regions:
            casts.weights.clear()
        return leave(self, *error)

    with standing_in(region, __init__=made, __enter__=entered, __exit__=left):
        yield


def _self_attention(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return native_self_attention(choose_attention, *args, **kwargs)


def _dropout(x: Any, p: float, train: bool) -> Any:
    if train and 0 < p < 1 and x.numel():
        return torch.native_dropout(x, p, train)[0]
    return x * 0 if train and p == 1 else x


def choose_attention(
    query: Any, key: Any, value: Any, mask: Any, dropout: float, *, causal: bool = False, grouped: bool = False
) -> str:
    """The kernel of `scaled_dot_product_attention` on Hopper: cuDNN's, then FlashAttention-2, then the memory-efficient one.

    The order and the conditions of `aten/src/ATen/native/transformers/cuda/sdp_utils.cpp` in torch 2.11: neighbours along the
    last dimension lie side by side in every operand, the mask among them (`check_last_dim_stride_equals_1_dense`), and there are
    as many heads of keys as of queries unless they are said to be `grouped` (`check_batch_size_and_num_heads_dense`; Falcon has
    one head of keys, which it spreads), else plain products are left, in fp32 (`_math_attention` in `attention.cpp`). A mask
    that `transformers` makes while it is traced, and that masks nothing, is one number spread over all keys, so that BERT and
    its kin go that way when they are compiled. cuDNN's wants half precision and heads of a multiple of 8 up to 128;
    FlashAttention no mask, and under a causal one as many keys as queries; the memory-efficient one heads of whole 16 bytes, and
    as many of keys as of queries even where they are grouped (`check_batch_size_and_num_heads_dense<false>`).
    Releases after 2.11 refuse cuDNN's dropout where its probability is no multiple of 1/16.
    """
    half = query.dtype in (torch.float16, torch.bfloat16)
    head, values, keys = query.shape[-1], value.shape[-1], key.shape[-2]
    operands = (query, key, value, *(() if mask is None else (mask,)))
    apart = any(each.dim() and each.stride(-1) != 1 for each in operands)
    if query.dim() != 4 or min(query.shape[-2], keys) == 0 or (apart and head > 1):
        return "math"
    if any(
        each.shape[0] != query.shape[0] or (each.shape[1] != query.shape[1] and not grouped) for each in (key, value)
    ):
        return "math"
    fits_dropout = not dropout or query.shape[-2] > 1
    learned = mask is not None and torch.is_grad_enabled() and mask.requires_grad
    if half and not learned and head % 8 == 0 == values % 8 and max(head, values) <= 128 and keys > 1 and fits_dropout:
        return "cudnn"
    if (
        half
        and mask is None
        and max(head, values) <= 256
        and values == head
        and not (causal and query.shape[-2] != keys)
    ):
        return "flash"
    if query.dtype == torch.float64 or any(each.shape[1] != query.shape[1] for each in (key, value)):
        return "math"
    aligned = 16 // query.element_size()
    return "efficient" if head % aligned == 0 == values % aligned else "math"


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    chosen = choose_attention(query, key, value, attn_mask, dropout_p, causal=is_causal, grouped=enable_gqa)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    grad = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
    if chosen != "math" and attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, -math.inf).to(query.dtype)
    if attn_mask is not None and attn_mask.dim() and chosen != "math":
        attn_mask = attn_mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    if chosen == "math" and enable_gqa and key.shape[1] != query.shape[1]:
        key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], 1) for each in (key, value))
    if chosen == "cudnn":
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, attn_mask, grad, dropout_p, is_causal, False, scale=scale
        )[0]
    if chosen == "flash":
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    if chosen == "efficient":
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale
        )[0]
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]
