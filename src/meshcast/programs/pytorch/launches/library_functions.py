"""The StableHLO of calls that libraries take: products, convolutions, attention, tables, sorts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from meshcast.programs.pytorch.eager.arithmetic import plain_name
from meshcast.programs.pytorch.launches.launch import Launch
from meshcast.programs.pytorch.launches.launch_functions import Body, Made, type_of


def product(body: Body, launch: Launch) -> Made:
    """A product of matrices, in full precision where they are fp32 and tensor cores are not asked for."""
    told = launch.told
    batch, m, n, k = (int(told[name]) for name in ("batch", "m", "n", "k"))
    left_shape = (batch, m, k) if told["left_k_minor"] else (batch, k, m)
    right_shape = (batch, n, k) if told["right_k_minor"] else (batch, k, n)
    dtype = launch.takes[0].dtype
    left, _ = _as(body, 0, left_shape, dtype)
    right, _ = _as(body, min(1, len(body.takes) - 1), right_shape, dtype)
    out = launch.gives[0].dtype
    precise = ", precision = [HIGHEST, HIGHEST]" if told.get("plain", dtype == "float32") else ""
    lc, rc = (2 if told["left_k_minor"] else 1), (2 if told["right_k_minor"] else 1)
    shape = (batch, m, n)
    value = body.op(
        f"stablehlo.dot_general {left}, {right}, batching_dims = [0] x [0], contracting_dims = [{lc}] x [{rc}]{precise} : "
        f"({type_of(left_shape, dtype)}, {type_of(right_shape, dtype)}) -> {type_of(shape, out)}"
    )
    return [(value, shape, out)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """How a convolution's window moves, and what its dimensions are."""

    dims: str
    stride: Sequence[int]
    pads: Sequence[tuple[int, int]]
    left_dilation: Sequence[int]
    right_dilation: Sequence[int]
    features: int = 1  # groups of channels
    batches: int = 1  # groups of images

    @property
    def text(self) -> str:
        """As StableHLO writes it."""
        pads = ", ".join(f"[{low}, {high}]" for low, high in self.pads)
        left, right = list(self.left_dilation), list(self.right_dilation)
        return (
            f"dim_numbers = {self.dims}, window = {{stride = {list(self.stride)}, pad = [{pads}], lhs_dilate = {left}, "
            f"rhs_dilate = {right}}} {{batch_group_count = {self.batches} : i64, feature_group_count = {self.features} : i64}}"
        )


def convolution(body: Body, launch: Launch) -> Made:
    """Forward; the data's gradient as a convolution of the dilated gradient; the weight's with batch and channels exchanged."""
    told = launch.told
    image, weight, out = (tuple(told[name]) for name in ("image", "weight", "out"))
    groups, dtype, what = int(told["groups"]), str(told["dtype"]), str(told["pass"])
    if told["transposed"]:
        image, out = out, image
        what = {"forward": "data", "data": "forward", "weight": "weight"}[what]
    stride, padding, dilation = (tuple(told[name]) for name in ("stride", "padding", "dilation"))
    reach = [(n - 1) * d + 1 for n, d in zip(weight[2:], dilation, strict=True)]
    dilated = [(n - 1) * step + 1 for n, step in zip(out[2:], stride, strict=True)]
    spatial = range(len(image) - 2)
    places, ones = ", ".join(map(str, spatial)), (1,) * len(spatial)
    plain = f"[b, f, {places}]x[o, i, {places}]->[b, f, {places}]"
    if what == "forward":
        left, right, result = _as(body, 0, image, dtype), _as(body, 1, weight, dtype), out
        pads = [(p, p) for p in padding]
        window = _Window(
            dims=plain, stride=stride, pads=pads, left_dilation=ones, right_dilation=dilation, features=groups
        )
    elif what == "data":
        turned = groups * weight[1], weight[0] // groups, *weight[2:]
        left, right, result = _as(body, 0, out, dtype), _as(body, 1, turned, dtype), image
        lows = [reach[i] - 1 - padding[i] for i in spatial]
        pads = [(lows[i], image[2 + i] + reach[i] - 1 - lows[i] - dilated[i]) for i in spatial]
        window = _Window(
            dims=plain, stride=ones, pads=pads, left_dilation=stride, right_dilation=dilation, features=groups
        )
    else:
        left, right, result = _as(body, min(1, len(body.takes) - 1), image, dtype), _as(body, 0, out, dtype), weight
        pads = [(padding[i], reach[i] - 1 + dilated[i] - image[2 + i] - padding[i]) for i in spatial]
        dims = f"[f, b, {places}]x[i, o, {places}]->[f, b, {places}]"
        window = _Window(
            dims=dims, stride=dilation, pads=pads, left_dilation=ones, right_dilation=stride, batches=groups
        )
    value = body.op(
        f"stablehlo.convolution({left[0]}, {right[0]}) {window.text} : "
        f"({type_of(left[1], dtype)}, {type_of(right[1], dtype)}) -> {type_of(result, dtype)}"
    )
    return [(value, result, dtype)]


def _as(body: Body, index: int, shape: Sequence[int], dtype: str) -> tuple[str, Sequence[int]]:
    value, have, kind = body.shaped(index, shape)
    value = body.convert(value, have, kind, dtype)
    return body.spread(value, have, dtype, shape), shape


_NUMBERS = {
    "bmm1": ((3, 3), (0, 1)), "bmm2": ((3, 2), (0, 1)), "bmm1_grad_gemm1": ((2, 2), (0, 1)), "bmm1_grad_gemm2": ((3, 2), (0, 1)),
    "bmm2_grad_gemm1": ((2, 2), (0, 1)), "bmm2_grad_gemm2": ((3, 3), (0, 1)),
}  # fmt: skip


def attention(body: Body, launch: Launch) -> Made:
    """A fused call in cuDNN's terms, heads before lengths."""
    told = launch.told
    backward = bool(told["backward"])
    shapes = [tuple(told[name]) for name in ("query", "key", "value")]
    dtype = str(told["dtype"])
    used = [_as(body, min(i, len(body.takes) - 1), shape, dtype) for i, shape in enumerate(shapes)]
    dots = {
        f"{name}_dot_dimension_numbers": {
            "lhs_contracting_dimensions": [str(left)], "rhs_contracting_dimensions": [str(right)],
            "lhs_batch_dimensions": ["0", "1"], "rhs_batch_dimensions": ["0", "1"],
        }
        for name, ((left, right), _) in _NUMBERS.items()
        if ("grad" in name) == backward
    }  # fmt: skip
    config = {
        "cudnn_fmha_backend_config": {
            "mask_type": "CAUSAL" if told["causal"] else "NO_MASK",
            "dropout_rate": told["dropout"],
            **dots,
        }
    }
    out = (*shapes[0][:3], shapes[2][3])
    results = shapes if backward else [out]
    kinds = ", ".join(type_of(shape, dtype) for shape in results)
    value = body.op(
        f"stablehlo.custom_call @__cudnn$fmhaSoftmax{'Backward' if backward else ''}({', '.join(v for v, _ in used)}) "
        f"{{backend_config = {json.dumps(json.dumps(config))}}} : ({', '.join(type_of(s, dtype) for _, s in used)}) -> "
        f"{kinds if len(results) == 1 else f'({kinds})'}"
    )
    if len(results) == 1:
        return [(value, out, dtype)]
    body.lines[-1] = body.lines[-1].replace(f"{value} =", f"{value}:{len(results)} =", 1)
    return [(f"{value}#{i}", shape, dtype) for i, shape in enumerate(results)]


def gather(body: Body, launch: Launch) -> Made:
    """Rows of a table by indices."""
    result = launch.gives[0]
    table, dtype, held = body.takes[0]
    whole_rows = plain_name(launch.name) != "gather" and result.shape and table.shape  # which picks elements
    width = result.shape[-1] if whole_rows and result.shape[-1] == table.shape[-1] <= held else 1
    rows = max(1, min(table.elements, held) // max(1, width))
    count = max(1, result.elements // max(1, width))
    value, _, dtype = body.shaped(0, (rows, width))
    at = (
        body.constant("int64", (count, 1))
        if len(body.takes) < 2 or body.takes[1][0].elements != count
        else _as(body, 1, (count, 1), "int64")[0]
    )
    numbers = (
        "#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>"
    )
    made = body.op(
        f'"stablehlo.gather"({value}, {at}) <{{dimension_numbers = {numbers}, slice_sizes = array<i64: 1, {width}>}}> : '
        f"({type_of((rows, width), dtype)}, {type_of((count, 1), 'int64')}) -> {type_of((count, width), dtype)}"
    )
    return [(made, (count, width), dtype)]


def scatter(body: Body, launch: Launch) -> Made:
    """Rows added to a table at indices."""
    table = launch.gives[0]
    updates = max(launch.takes, key=lambda each: each.elements if not each.dtype.startswith("int") else 0)
    width = table.shape[-1] if table.shape and updates.shape and updates.shape[-1] == table.shape[-1] else 1
    rows, count = max(1, table.elements // width), max(1, updates.elements // width)
    kind = type_of((), table.dtype)
    index = next(i for i, each in enumerate(body.takes) if each[0].storage == updates.storage)
    value = _as(body, index, (count, width), table.dtype)[0]
    held = next((i for i, each in enumerate(body.takes) if each[0].storage == table.storage), None)
    base = body.constant(table.dtype, (rows, width)) if held is None else body.shaped(held, (rows, width))[0]
    at = body.constant("int64", (count, 1))
    numbers = (
        "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
        "index_vector_dim = 1>"
    )
    whole, rows_added = type_of((rows, width), table.dtype), type_of((count, width), table.dtype)
    made = body.op(
        f'"stablehlo.scatter"({base}, {at}, {value}) <{{scatter_dimension_numbers = {numbers}}}> ({{\n'
        f"    ^bb0(%x: {kind}, %y: {kind}):\n      %s = stablehlo.add %x, %y : {kind}\n      stablehlo.return %s : {kind}\n"
        f"    }}) : ({whole}, {type_of((count, 1), 'int64')}, {rows_added}) -> {whole}"
    )
    return [(made, (rows, width), table.dtype)]


def sort(body: Body, launch: Launch) -> Made:
    """The rows of the only operand in order."""
    value, shape, dtype = body.shaped(0)
    kind, scalar = type_of(shape, dtype), type_of((), dtype)
    made = body.op(
        f'"stablehlo.sort"({value}) <{{dimension = {len(shape) - 1} : i64, is_stable = true}}> ({{\n'
        f"    ^bb0(%x: {scalar}, %y: {scalar}):\n"
        f"      %s = stablehlo.compare LT, %x, %y : ({scalar}, {scalar}) -> tensor<i1>\n"
        f"      stablehlo.return %s : tensor<i1>\n    }}) : ({kind}) -> {kind}"
    )
    del launch
    return [(made, shape, dtype)]
