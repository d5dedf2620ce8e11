"""ATen's elementwise operators as StableHLO's arithmetic, each element by element; free of torch.

What a kernel of them costs hangs on the bytes that it moves, and where that is little on the functions that it calls, so the
ops stand for the work, not for the values.
"""

from __future__ import annotations


def _table(text: str) -> dict[str, tuple[str, ...]]:
    """Operators, and what they do to an element, a line for those that are alike; `-`: nothing."""
    found = {}
    for line in text.strip().splitlines():
        names, _, ops = line.partition(":")
        for name in names.split():
            found[name] = tuple(op for op in ops.split() if op != "-")
    return found


POINTWISE = _table(
    """
    _conj _to_copy arange clone contiguous copy fill full full_like new_full new_ones new_zeros ones ones_like: -
    scalar_tensor zero zeros zeros_like: -
    abs: abs
    add: add
    bitwise_and logical_and: and
    ceil: ceil
    bernoulli eq ge gt isfinite isinf isnan le lt ne: compare
    cos: cosine
    atan2 div reciprocal: divide
    erf: erf
    exp: exponential
    expm1: exponential_minus_one
    floor round trunc: floor
    exponential log log2: log
    log1p: log_plus_one
    clamp_min maximum relu: maximum
    clamp_max minimum: minimum
    mul pow square: multiply
    neg: negate
    bitwise_not logical_not: not
    bitwise_or logical_or: or
    rsqrt: rsqrt
    masked_fill nan_to_num tril triu where: select
    sign: sign
    sin: sine
    sqrt: sqrt
    rsub sub: subtract
    tanh: tanh
    hardtanh_backward threshold threshold_backward: compare select
    addcdiv: divide add
    floor_divide: divide floor
    logit: divide log
    elu: exponential_minus_one select
    clamp hardtanh: maximum minimum
    addcmul: multiply add
    native_dropout_backward: multiply multiply
    leaky_relu leaky_relu_backward: multiply select
    rand random uniform: multiply xor
    mse_loss: subtract multiply
    hardsigmoid_backward: compare select multiply
    softplus_backward: exponential divide multiply
    softplus: exponential log_plus_one select
    elu_backward: exponential multiply select
    sigmoid_backward tanh_backward: multiply subtract multiply
    lerp: subtract multiply add
    hardsigmoid: add maximum minimum divide
    remainder: divide floor multiply subtract
    mish: exponential log_plus_one tanh multiply
    normal randn: log sqrt cosine multiply
    log_sigmoid_backward log_sigmoid_forward sigmoid: negate exponential add divide
    hardswish: add maximum minimum multiply divide
    hardswish_backward: compare select multiply add multiply
    gelu: multiply erf add multiply multiply
    glu silu: negate exponential add divide multiply
    native_dropout: multiply xor multiply compare select multiply
    glu_backward: negate exponential add divide multiply multiply
    silu_backward: negate exponential add divide multiply add multiply multiply
    gelu_backward: multiply erf add multiply multiply multiply exponential multiply add multiply
    """
)

# Data movement that Inductor computes in place of the reader: each element from another place.
MOVES = _table(
    """
    channel_shuffle diagonal_copy flip index_select native_channel_shuffle pixel_shuffle pixel_unshuffle reflection_pad2d: -
    repeat roll unfold_copy upsample_nearest2d: -
    _adaptive_avg_pool2d_backward: add
    cat constant_pad_nd select_backward select_scatter slice_backward slice_scatter stack: select
    _adaptive_avg_pool2d avg_pool2d avg_pool2d_backward: add add add add
    upsample_bilinear2d: multiply add multiply add multiply add multiply add
    max_pool2d_with_indices: maximum maximum maximum maximum maximum maximum maximum maximum maximum
    max_pool2d_with_indices_backward: compare select add compare select add compare select add compare select add
    upsample_bicubic2d: multiply add multiply add multiply add multiply add multiply add multiply add
    """
)


# Of those, the ones that read an element's neighbours too: what they read is in memory before they begin.
WINDOWED = frozenset(
    name
    for name in MOVES
    if name.startswith(("avg_pool", "max_pool", "_adaptive_avg_pool", "upsample", "reflection_pad"))
)


def plain_name(name: str) -> str:
    """An operator's name without the mark of those that write into their first operand."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name
