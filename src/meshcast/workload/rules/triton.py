"""Triton kernels (`__gpu$xla.gpu.triton`, as Pallas calls them): by what their code does, and by name where JAX ships them.

The work is counted from the code inside the call (`workload.triton_code`) in a child process, since damaged bytecode can bring
down its reader. How well an unknown kernel uses the machine is not in its code: its cost is marked as guessed.

`jax.experimental.pallas.ops.gpu.attention` is known by its kernels' names and takes arrays `[B, S, H, D]`. Its forward kernel
does the two products of attention; its one backward kernel makes dK and dV (S, dP, dV, dK) and then dQ (S, dP, dQ), so that of
its seven products S twice and dP once are computed again. Whether it is causal is in its loops: they skip what is masked.
Triton multiplies by warps or warp groups and overlaps less than cuDNN; FlashAttention-2, which it follows, stands for it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from jaxlib.mlir import ir

from meshcast.base import Child, ChildCrashedError, ChildFailedError
from meshcast.programs import string_of
from meshcast.workload.graph import Attention, Cost, OpKind
from meshcast.workload.rule import OpReading
from meshcast.workload.rules.attention import attended, attention_cost
from meshcast.workload.rules.costs import total_bytes

TRITON = "__gpu$xla.gpu.triton"
_TIMEOUT_S = 120.0
_GRID = ("grid_x", "grid_y", "grid_z")
# Products of a pair by kernel: (head sizes of keys, of values), and of those what was computed before.
_ATTENTION = {"mha_forward": ((1, 1), (0, 0)), "mha_backward": ((4, 3), (2, 1))}
_WHOLE = 0.99  # of all pairs: more than this is no mask


@functools.cache
def _child() -> Child:
    return Child("meshcast.workload._triton_child")


def triton_cost(reading: OpReading) -> Cost | str:
    """The cost of a Triton call by its code, or why its code does not tell."""
    config = _config(reading)
    code = config.get("ir")
    if code is None or any(name not in config for name in _GRID):
        return "the call has no code and grid in its backend_config"
    try:
        grid = [max(1, int(ir.IntegerAttr(config[name]).value)) for name in _GRID]
        work = json.loads(_child().request({"grid": grid}, ir.StringAttr(code).value_bytes, timeout_s=_TIMEOUT_S))
    except ChildFailedError as error:
        return f"its code cannot be counted: {str(error).strip().splitlines()[-1]}"
    except ChildCrashedError:
        return "its code is damaged: reading it crashed"
    except ValueError:
        return "its grid is no three integers"
    return _known(reading, config, work) or _counted(reading, work)


def _config(reading: OpReading) -> Mapping[str, Any]:
    """The typed attributes of the call."""
    attributes = reading.op.attributes
    found = attributes.get("mhlo.backend_config")
    if not isinstance(found, ir.DictAttr):
        return {}
    return {found[i].name: found[i].attr for i in range(len(found))}


def _counted(reading: OpReading, work: Mapping[str, float]) -> Cost:
    """Products, arithmetic and functions as counted; no operand is read more than once from memory."""
    sizes = [tensor.bytes for tensor in reading.operands]
    share = min(1.0, work["loaded_bytes"] / max(1, sum(sizes)))
    floats = [t.dtype for t in (*reading.operands, *reading.results) if t.dtype.startswith(("f", "bf", "tf"))]
    return Cost(
        kind=OpKind.CUSTOM,
        dtype=floats[0] if floats else reading.results[0].dtype if reading.results else "",
        matrix_flops=work["matrix_flops"],
        vector_flops=work["vector_flops"],
        transcendentals=work["transcendentals"],
        operand_bytes=tuple(int(size * share) for size in sizes),
        written_bytes=int(min(total_bytes(reading.results), work["stored_bytes"])),
        guessed=True,
    )


def _known(reading: OpReading, config: Mapping[str, Any], work: Mapping[str, float]) -> Cost | None:
    """JAX's own attention kernels, as attention."""
    name = string_of(config["name"]) if isinstance(config.get("name"), ir.StringAttr) else ""
    arrays = reading.operands[:3]
    if name not in _ATTENTION or len(arrays) < 3 or any(len(tensor.shape) != 4 for tensor in arrays):
        return None
    query, key, value = arrays
    (keys, values), (keys_again, values_again) = _ATTENTION[name]
    batch, length, heads, head = query.shape
    if key.shape[0] != batch or key.shape[3] != head:  # another kernel of the same name: decoding with split keys
        return None
    pair_width = keys * head + values * value.shape[3]
    whole = 2.0 * batch * heads * length * key.shape[1] * pair_width
    shape = Attention(
        batch=batch, heads=heads, kv_heads=key.shape[2], q_len=length, kv_len=key.shape[1], head_dim=head,
        dtype=query.dtype, causal=work["matrix_flops"] < _WHOLE * whole, backward=name == "mha_backward",
        library="flash-2",
    )  # fmt: skip
    if work["matrix_flops"] < 0.9 * whole * attended(shape) / (length * key.shape[1]):
        return None  # it does less than attention over these shapes would
    return attention_cost(
        reading, shape, pair_width=pair_width, again=keys_again * head + values_again * value.shape[3]
    )
