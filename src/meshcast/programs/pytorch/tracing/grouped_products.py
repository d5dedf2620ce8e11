"""`torch.nn.functional.grouped_mm`: one product of each group of rows with weights of its own, as layers of experts use it.

It becomes JAX's ragged product, which is read as one grouped GEMM: its FLOPs are those of all rows, whatever the groups.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from torchax.ops.mappings import TORCH_DTYPE_TO_JAX

_INNER = jax.lax.RaggedDotDimensionNumbers(
    dot_dimension_numbers=(((0,), (0,)), ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=[]
)


def grouped_mm(
    mat_a: Any,  # torch's own names, which callers may spell
    mat_b: Any,
    offs: Any = None,
    bias: Any = None,
    out_dtype: Any = None,
) -> Any:
    """The products of all groups, G of them; `offs` has the end of each along the dimension that they share out.

    - `[rows, K] x [G, K, N] -> [rows, N]`: rows are shared out;
    - `[G, M, K] x [K, columns] -> [M, columns]`: columns are;
    - `[M, K] x [K, N] -> [G, M, N]`: what is summed over is, as for gradients of weights;
    - `[G, M, K] x [G, K, N] -> [G, M, N]`: nothing is.
    """
    wide = None if out_dtype is None else TORCH_DTYPE_TO_JAX[out_dtype]
    if offs is None:
        result = jnp.matmul(mat_a, mat_b, preferred_element_type=wide)
    else:
        sizes = jnp.diff(offs, prepend=jnp.zeros((1,), offs.dtype)).astype(jnp.int32)
        if mat_a.ndim == 2 and mat_b.ndim == 2:
            result = jax.lax.ragged_dot_general(mat_a.T, mat_b, sizes, _INNER, preferred_element_type=wide)
        elif mat_a.ndim == 2:
            result = jax.lax.ragged_dot(mat_a, mat_b, sizes, preferred_element_type=wide)
        else:
            result = jax.lax.ragged_dot(mat_b.T, mat_a.swapaxes(1, 2), sizes, preferred_element_type=wide).T
    return result if bias is None else result + bias.astype(result.dtype)
