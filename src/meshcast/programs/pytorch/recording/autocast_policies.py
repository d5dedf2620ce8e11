"""What CUDA's autocast does to an operator's operands: casts them down, up to fp32, to the widest among them, or not at all.

The names are those of PyTorch's lists for CUDA (`ATen/autocast_mode.h`: AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32,
AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_PROMOTE), with the functions of Python that stand for one of them. `cat` and `stack` are
in none of them: they take pieces of several dtypes on every device, which JAX has to be given cast. torchax has a table too, of
single overloads, which it applies after this one; it takes no operands in a list, so `tracing.traced_module` leaves it out.

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOWER = _names(
    """
    _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution prelu addmm addmv
    addr matmul __matmul__ __rmatmul__ einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot
    multi_dot vecdot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    scaled_dot_product_attention
    """
)
_FP32 = _names(
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal __rdiv__ __rtruediv__ rsqrt sinh tan pow __pow__ __rpow__
    softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss
    cosine_embedding_loss nll_loss nll_loss2d nll_loss_nd cross_entropy cross_entropy_loss hinge_embedding_loss kl_div l1_loss
    smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
    multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
    _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d
    upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d
    _upsample_bicubic2d_aa prod softmax softmin log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm vector_norm
    matrix_norm norm sum
    """
)
_WIDEST = _names(
    """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler grid_sample index_put tensordot scatter_add
    """
)
_JOINS = _names("cat concat concatenate stack")  # of the widest dtype by themselves


# Functions that are told fp32 as their result's dtype instead of being handed cast operands, and those that stand for others
# above ATen, which casts further below.
_RESULT = _names("prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum")
_ABOVE = _names("cross_entropy cross_entropy_loss rms_norm softmin")


def autocast_policy() -> dict[str, str]:
    """What CUDA's autocast does by the name of an ATen operator: `lower`, `fp32`, `widest`, or `result` (told its dtype)."""
    policy = dict.fromkeys(_LOWER, "lower") | dict.fromkeys(_FP32 - _ABOVE, "fp32") | dict.fromkeys(_WIDEST, "widest")
    return policy | dict.fromkeys(_RESULT, "result")


def autocast_operands(function: Any, args: Any, kwargs: Any, dtype: Any) -> tuple[Any, Any]:
    """Operands as autocast hands them to a function.

    Args:
        function: One of torch's functions or methods, or an overload of ATen.
        args: Its arguments.
        kwargs: Its keyword arguments; where they say the result's `dtype`, the caller has chosen and nothing is cast.
        dtype: The lower precision.
    """
    name = getattr(getattr(function, "overloadpacket", function), "__name__", "")
    widest = name in _WIDEST | _JOINS
    if not (widest or name in _LOWER | _FP32) or kwargs.get("dtype") is not None:
        return args, kwargs
    given = {leaf.dtype for leaf in pytree.tree_leaves((args, kwargs)) if _floating(leaf)}
    wanted = dtype if name in _LOWER else torch.float32  # the widest of several is fp32: float64 is refused
    if given <= {wanted} or (widest and len(given) < 2):
        return args, kwargs
    cast = pytree.tree_map(lambda leaf: leaf.to(wanted) if _floating(leaf) else leaf, (args, kwargs))
    return cast[0], cast[1]


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
