"""Calls of libraries: products (cuBLAS), convolutions (cuDNN), fused attention, tables; free of torch.

Biases of `addmm` are in cuBLAS's epilogue; those of convolutions are a kernel of their own. cuDNN 9 on Hopper turns images
that lie channels first around most convolutions, but for those of single pixels, which are products. Matrix
products in fp32 do not use TF32 unless asked (`torch.backends.cuda.matmul.allow_tf32`), convolutions do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from meshcast.programs.pytorch.eager.arithmetic import plain_name
from meshcast.programs.pytorch.eager.code_shapes import (
    ATTENTION_DROPPED,
    BY_VECTOR,
    CUDNN,
    GROUPED,
    MASKED_PAIR,
    PLAIN,
    PLAIN_SHORT,
    TF32,
    TURN_START,
    TURNED,
    UNALIGNED,
    indexed,
    one_by_one,
    tapped,
)
from meshcast.programs.pytorch.eager.contiguous_operands import copied_to, dense_view
from meshcast.programs.pytorch.eager.expert_products import grouped_product
from meshcast.programs.pytorch.eager.grouped_convolutions import (
    channels_of_one_group,
    groups_follow,
    of_one_group,
    padded_copy,
    padded_width,
)
from meshcast.programs.pytorch.eager.picked import PICKED
from meshcast.programs.pytorch.eager.sums import channels_last, summing
from meshcast.programs.pytorch.launches.launch import Arithmetic, Launch, pointwise
from meshcast.programs.pytorch.recording.calls import BYTES, AtenOp, View

_LARGE, _MANY = 256, 32  # pixels of a result, channels of an image
_TILE_PIXELS = 128  # that a tile of a product takes
_SHORT = 64  # sums of a product, which fill no pipeline
_TILE = 32  # the smallest tile of plain cores (`tilesize32x32x8` in profiles)
_WIDE = 16  # bytes that rows are a multiple of for vector loads
_BIASED = ("addmm", "baddbmm", "addbmm", "addmv")


def product(op: AtenOp) -> Iterator[Launch]:
    """A product of matrices, copies of operands whose rows lie apart before it (`prepare_matrix_for_cublas`)."""
    bias, operands = (op.takes[0], op.takes[1:]) if plain_name(op.name) in _BIASED else (None, op.takes)
    left, right = operands[0], operands[-1]
    for each in (left, right):
        if len(each.shape) > 1 and 1 not in each.strides[-2:] and 1 not in each.shape[-2:]:
            dense = dense_view(each)
            yield copied_to(each, dense, "copy_for_cublas")
    told = {
        "batch": math.prod(left.shape[:-2]),
        "m": left.shape[-2] if len(left.shape) > 1 else 1,
        "k": left.shape[-1],
        "n": right.shape[-1] if len(right.shape) > 1 else 1,
        "left_k_minor": _minor_last(left),
        "right_k_minor": not _minor_last(right),
    }
    if told["batch"] == 1 and 1 in (told["m"], told["n"]):
        yield from _by_vector(op, left, right, bias)
        return
    single = left.dtype == "float32"
    aligned = _aligned(left) and _aligned(right) and _aligned(op.gives[0])
    # TF32 is not worth it to cuBLAS in small tiles whose rows lie askew (DLRM's 27 features).
    plain = single and (not op.told.get("allow_tf32") or (told["batch"] > 1 and not aligned))
    share = _plain_share(told) if plain else 1.0
    if single and not plain and aligned:
        share = TF32[told["left_k_minor"] + told["right_k_minor"]]
    yield Launch(
        name=op.name,
        form="product",
        takes=(left, right, *((bias,) if bias is not None else ())),
        gives=op.gives[:1],
        told={**told, "plain": plain},
        share=share,
    )


def _plain_share(told: dict[str, Any]) -> float:
    """Of plain cores: short sums fill no pipeline, and a small result is a tile of its own size, not a warp group's 64 rows."""
    tiny = max(told["m"], told["n"]) <= _TILE
    return PLAIN_SHORT * (64 / _TILE if tiny else 1.0) if tiny or told["k"] <= _SHORT else PLAIN


def _by_vector(op: AtenOp, left: View, right: View, bias: View | None) -> Iterator[Launch]:
    """A matrix times a vector (`gemv`), which streams the matrix; a bias is copied first and added to (`addmm_out_cuda_impl`)."""
    matrix, along = (left, -1) if left.elements >= right.elements else (right, -2 if len(right.shape) > 1 else -1)
    if bias is not None:
        yield pointwise("copy_bias", (bias,), op.gives[:1], ())
    rank = len(matrix.shape)
    work = Arithmetic(ops=("multiply",), shape=matrix.shape, reduced=(along % rank,))
    takes = (left, right) if bias is None else (left, right, op.gives[0])
    yield Launch(name=op.name, form="reduce", takes=takes, gives=op.gives[:1], stages=(work,), share=BY_VECTOR)


def _aligned(view: View) -> bool:
    """Whether rows begin at multiples of 16 bytes."""
    steps = [stride for stride, size in zip(view.strides, view.shape, strict=True) if stride > 1 and size > 1]
    return not any(step * BYTES[view.dtype] % _WIDE for step in steps)


def _minor_last(view: View) -> bool:
    return len(view.shape) < 2 or view.strides[-1] == 1 or view.shape[-1] == 1


def convolution_told(op: AtenOp) -> dict[str, Any]:
    """Sizes of a convolution, forward or backward, from its input, its weight and its result or its gradient."""
    backward = op.name.endswith("backward")
    image, weight = (op.takes[1], op.takes[2]) if backward else (op.takes[0], op.takes[1])
    spatial = len(image.shape) - 2

    def several(name: str, value: int) -> tuple[int, ...]:
        told = op.told.get(name) or (value,)
        told = told if isinstance(told, tuple) else (told,)
        return tuple(told) * spatial if len(told) == 1 else tuple(told)

    return {
        "image": image.shape,
        "weight": weight.shape,
        "out": (op.takes[0] if backward else op.gives[0]).shape,
        "groups": int(op.told.get("groups") or 1),
        "stride": several("stride", 1),
        "padding": several("padding", 0),
        "dilation": several("dilation", 1),
        "transposed": bool(op.told.get("transposed")),
        "dtype": image.dtype,
    }


def depthwise(told: Mapping[str, Any]) -> bool:
    """Whether every channel is convolved on its own."""
    return bool(told["groups"] > 1 and told["groups"] == told["image"][1])


def turned_by_cudnn(told: dict[str, Any], image: View) -> bool:
    """Whether cuDNN copies images to channels last and back: for windows, and in half precision for few pixels of an odd number.

    Single pixels are products of an image's channels with its pixels: 49 of them (the last stage of ResNets and RegNets) fill no
    tile unless all images lie one after the other, 169 and more (SqueezeNet) do, and are read two bytes at a time. In fp32 (TF32)
    it has kernels for channels first too, and takes them for few channels and for small images (DenseNet).
    """
    if channels_last(image) or depthwise(told) or len(image.shape) != 4:
        return False
    if image.dtype not in ("bfloat16", "float16"):
        return not single_pixels(told) and math.prod(told["out"][2:]) >= _LARGE and told["image"][1] >= _MANY
    pixels = math.prod(told["out"][2:])
    return not single_pixels(told) or (pixels % 2 == 1 and pixels < _TILE_PIXELS)


def single_pixels(told: Mapping[str, Any]) -> bool:
    """Whether a convolution is a product: windows of one pixel, each pixel in turn."""
    return all(n == 1 for n in (*told["weight"][2:], *told["stride"]))


def _of_cudnn(told: dict[str, Any], image: View) -> float:
    """The share of cuDNN's convolutions; products of images channels first go by the alignment of their rows of pixels."""
    aligned = math.prod(told["image"][2:]) * BYTES[image.dtype] % _WIDE == 0
    share = CUDNN[by_cudnn(told, image, last=channels_last(image))]
    half = image.dtype in ("bfloat16", "float16")
    return share if not half or aligned or channels_last(image) or not single_pixels(told) else share * UNALIGNED


def grouped_share(told: Mapping[str, Any]) -> float:
    """What groups of channels leave of cuDNN's rate."""
    return GROUPED if told["groups"] > 1 and not depthwise(told) else 1.0


def by_cudnn(told: Mapping[str, Any], image: View, *, last: bool) -> str:
    """The kind of cuDNN's convolutions, by dtype and window; `last`: images lie pixel by pixel."""
    if image.dtype in ("bfloat16", "float16"):
        return "half"
    return "windows" if not single_pixels(told) else "pixels" if last else "pixels apart"


def turning(view: View) -> Launch:
    """A copy from channels first to channels last, or back."""
    return Launch(
        name="nchwToNhwc",
        form="pointwise",
        takes=(view,),
        gives=(view,),
        stages=(Arithmetic(),),
        turned=True,
        share=TURNED,
        extra=TURN_START,
    )


def depthwise_by_cudnn(launch: Launch) -> Launch:
    """A convolution of single channels that lie last (`conv2d_c1_k1_nhwc`): a loop over elements and the window's."""
    told = launch.told
    taps = math.prod(told["weight"][2:])
    return _looped(launch, tapped(launch.takes, launch.gives, taps=math.prod(told["out"]) * taps, what=told["pass"]))


def _depthwise_by_aten(launch: Launch) -> Launch:
    """The same of channels that lie first."""
    told = launch.told
    elements = math.prod(told["image"] if told["pass"] == "data" else told["out"])
    taps = math.prod(told["weight"][2:])
    extra = one_by_one(launch.takes, launch.gives, elements=elements, taps=taps, what=told["pass"])
    return replace(_looped(launch, 1.0), extra=extra)


def _by_aten(told: dict[str, Any], image: View) -> bool:
    """Whether ATen convolves channels one by one itself: channels first, unless in fp16 of 32 and more (`Convolution.cpp`)."""
    half = image.dtype == "float16" and image.shape[1] >= _MANY
    return depthwise(told) and len(image.shape) == 4 and not channels_last(image) and not half


def _looped(launch: Launch, share: float) -> Launch:
    """A convolution of single channels as a loop over elements, or as sums of them where it makes weights' gradients."""
    sums = launch.told["pass"] == "weight"
    image = launch.takes[0].shape
    dims = tuple(d for d in range(len(image)) if d != 1)
    work = Arithmetic(ops=("multiply",), shape=image, reduced=dims) if sums else Arithmetic(ops=("multiply", "add"))
    return Launch(
        name=launch.name, form="reduce" if sums else "pointwise", takes=launch.takes, gives=launch.gives, stages=(work,),
        told=launch.told, share=share, op=launch.op,
    )  # fmt: skip


def convolved(name: str, takes: tuple[View, ...], out: View, told: dict[str, Any], *, turned: bool) -> Iterator[Launch]:
    """One pass of a convolution, between copies where cuDNN turns its operands; of wide groups one pass for each."""
    if groups_follow(told) and not depthwise(told):
        yield from _group_by_group(name, takes, out, told, turned=turned)
        return
    padded = padded_width(told) if turned else 0
    images = {"forward": (True, False, True), "data": (True, False, True), "weight": (True, True, False)}[told["pass"]]

    def copies(view: View, place: int) -> Iterator[Launch]:
        if padded:
            yield from padded_copy(view, told, padded, weight=not images[place])
        elif turned:
            yield turning(view)

    for place, view in enumerate(takes):
        yield from copies(view, place)
    share = CUDNN[by_cudnn(told, takes[0], last=True)] if turned else _of_cudnn(told, takes[0])
    share *= grouped_share(told)
    name = f"{name}_grouped" if told["groups"] > 1 and not depthwise(told) else name
    made = Launch(name=name, form="convolution", takes=takes, gives=(out,), told=told, share=share)
    if _by_aten(told, takes[0]):
        yield _depthwise_by_aten(made)
    else:
        yield depthwise_by_cudnn(made) if depthwise(told) and channels_last(takes[0]) else made
    yield from copies(out, len(takes))


def _group_by_group(
    name: str, takes: tuple[View, ...], out: View, told: dict[str, Any], *, turned: bool
) -> Iterator[Launch]:
    """Wide groups, one after the other; in half precision every group's channels are turned, whatever its window."""
    groups, what = int(told["groups"]), str(told["pass"])
    weights = {"forward": 1, "data": 1}.get(what, -1)
    parts = tuple(channels_of_one_group(view, groups, weight=i == weights) for i, view in enumerate(takes))
    made = channels_of_one_group(out, groups, weight=what == "weight")
    half = takes[0].dtype in ("bfloat16", "float16")
    turned = not channels_last(takes[0]) and (turned or half)
    share = CUDNN[by_cudnn(told, takes[0], last=turned or channels_last(takes[0]))]
    one = Launch(name=name, form="convolution", takes=parts, gives=(made,), told=of_one_group(told), share=share)
    for _ in range(groups):
        yield from (turning(view) for view in parts if turned and math.prod(view.shape[2:]) > 1)
        yield one
        if turned and math.prod(made.shape[2:]) > 1:
            yield turning(made)


def _convolution(op: AtenOp) -> Iterator[Launch]:
    told = convolution_told(op)
    image, weight, out = op.takes[0], op.takes[1], op.gives[0]
    name = "conv_depthwise" if depthwise(told) else "cudnn_convolution"
    yield from convolved(name, (image, weight), out, {**told, "pass": "forward"}, turned=turned_by_cudnn(told, image))
    if len(op.takes) > 2:
        made = pointwise("add_bias", (out, op.takes[2]), (out,), ("add",))
        yield replace(made, share=indexed(made.takes, made.gives))


def _convolution_backward(op: AtenOp) -> Iterator[Launch]:
    told = convolution_told(op)
    gradient, image, weight = op.takes[0], op.takes[1], op.takes[2]
    mask = op.told.get("output_mask") or (True, True, False)
    given = list(op.gives)
    turned = turned_by_cudnn(told, image)
    kind = "conv_depthwise" if depthwise(told) else "cudnn"
    if mask[0]:
        yield from convolved(f"{kind}_dgrad", (gradient, weight), given.pop(0), {**told, "pass": "data"}, turned=turned)
    if mask[1]:
        yield from convolved(
            f"{kind}_wgrad", (gradient, image), given.pop(0), {**told, "pass": "weight"}, turned=turned
        )
    if mask[2] and given:
        dims = tuple(d for d in range(len(gradient.shape)) if d != 1)
        yield from summing("sum_bias", gradient, dims, (given[0],))


def attention(op: AtenOp) -> Iterator[Launch]:
    """Fused attention: one kernel forward; backward one between a sum of products and a cast (cuDNN's and FlashAttention's)."""
    backward = op.name.endswith("backward")
    query, key, value = (op.tensor(name) or op.takes[i] for i, name in enumerate(("query", "key", "value")))
    library = next(name for name in ("cudnn", "flash", "efficient") if name in op.name)
    mask = op.tensor("attn_bias")
    dropout = float(op.told.get("dropout_p") or 0.0)
    told = {
        "causal": bool(op.told.get("is_causal")),
        "backward": backward,
        "library": library,
        "query": query.shape,
        "key": key.shape,
        "value": value.shape,
        "dropout": dropout,
        "dtype": query.dtype,
    }
    pairs = math.prod(query.shape[:3]) * key.shape[2] if len(query.shape) == 4 else 0
    gradient = op.takes[0]
    if backward:
        dims = (len(gradient.shape) - 1,)
        yield Launch(
            name="compute_dot_do_o",
            form="reduce",
            takes=(gradient, query),
            gives=op.gives[:1],
            stages=(Arithmetic(ops=("multiply",), shape=gradient.shape, reduced=dims), Arithmetic()),
            share=0.8,
        )
    yield Launch(
        name=f"{library}_sdpa",
        form="attention",
        takes=(query, key, value, *((mask,) if mask is not None else ())),
        gives=op.gives[: 3 if backward else 1],
        told=told,
        share=ATTENTION_DROPPED if dropout else 1.0,
        extra=MASKED_PAIR["backward" if backward else "forward"] * pairs if mask is not None else 0.0,
    )
    if backward:
        yield pointwise("convert_dq", op.gives[:1], op.gives[:1], ("add",))


def _sorted(op: AtenOp) -> Iterator[Launch]:
    yield Launch(name=op.name, form="sort", takes=op.takes[:1], gives=op.gives)


LIBRARIES: dict[str, Callable[[AtenOp], Iterator[Launch]]] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "dot", "addmv"), product),
    "_grouped_mm": grouped_product,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(
        (
            f"_scaled_dot_product_{kind}_attention{end}"
            for kind in ("cudnn", "flash", "efficient")
            for end in ("", "_backward")
        ),
        attention,
    ),
    **PICKED,
    **dict.fromkeys(("sort", "topk"), _sorted),
}


def turned_bytes(op: AtenOp) -> int:
    """Bytes of the workspace in which cuDNN has a convolution's operands and result channels last: of its largest pass."""
    told = convolution_told(op)
    backward = op.name.endswith("backward")
    image = op.takes[1] if backward else op.takes[0]
    if not turned_by_cudnn(told, image):
        return 0
    return image.bytes + (op.takes[0] if backward else op.gives[0]).bytes
