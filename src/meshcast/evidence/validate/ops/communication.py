"""Programs of collectives and of products that are sharded over a few chips.

`bytes` is what one device holds before the collective, unless the key says otherwise.
"""

from __future__ import annotations

from meshcast.base import InputError, UnsupportedError
from meshcast.evidence.validate.ops.rows import OpRow
from meshcast.evidence.validate.ops.stablehlo_text import ModuleText, Value, tensor_type
from meshcast.workload import DTYPE_BITS

COLLECTIVES = ("all_reduce", "all_reduce_tuple", "all_gather", "reduce_scatter", "all_to_all", "collective_permute")
SHARDED = ("matmul_replicated", "matmul_sharded_rowcol", "matmul_sharded_colrow")


def collective_text(row: OpRow) -> str:
    """One collective over all devices, in a chain where it was measured in one."""
    devices = row.number("devices")
    if devices < 2:
        raise InputError("a collective needs two devices", where=row.id)
    kind = row.op.removesuffix("_tuple")
    m = ModuleText(kind, devices)
    size = _elements(row, devices)
    values = [m.argument((size,), row.element) for _ in range(2 if row.op.endswith("_tuple") else 1)]
    if kind in ("all_gather", "reduce_scatter"):  # the result has another shape: a chain cannot feed it back as it is
        return m.finish(collective(m, kind, values[0], devices))
    return m.finish(
        *m.loop(row.trips, values, lambda carried: [collective(m, kind, value, devices) for value in carried])
    )


def steps(row: OpRow) -> int:
    """The number of times that the program holds the op."""
    return 1 if row.op in ("all_gather", "reduce_scatter", *SHARDED) else row.trips


def _elements(row: OpRow, devices: int) -> int:
    """The elements of one device's operand, a multiple of the devices where it is cut into as many parts."""
    if row.has("bytes_per_operand"):  # the whole array, over all devices
        size = row.number("bytes_per_operand") // devices
    else:
        size = row.number("bytes", "input_bytes_per_device", "input_bytes")
    count = size * 8 // DTYPE_BITS[row.element]
    if row.op in ("reduce_scatter", "all_to_all"):
        count = count // devices * devices
    if count < 1:
        raise InputError(f"{size} bytes hold no element for each of {devices} devices", where=row.id)
    return count


def collective(m: ModuleText, kind: str, x: Value, devices: int, dim: int = 0) -> Value:
    """One collective of all devices along a dimension of `x`."""
    members = ", ".join(map(str, range(devices)))
    channel = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
    groups = f"replica_groups = dense<[[{members}]]> : tensor<1x{devices}xi64>, {channel}"
    shape = list(x.shape)
    body = ""
    if kind == "collective_permute":
        pairs = ", ".join(f"[{at}, {(at + 1) % devices}]" for at in range(devices))
        attributes = f"source_target_pairs = dense<[{pairs}]> : tensor<{devices}x2xi64>, {channel}"
    elif kind == "all_to_all":
        attributes = (
            f"split_dimension = {dim} : i64, concat_dimension = {dim} : i64, split_count = {devices} : i64, {groups}"
        )
    elif kind == "all_gather":
        shape[dim] *= devices
        attributes = f"all_gather_dim = {dim} : i64, {groups}, use_global_device_ids"
    else:
        scalar = tensor_type((), x.dtype)
        body = (
            f" ({{ ^bb0(%a: {scalar}, %b: {scalar}): %s = stablehlo.add %a, %b : {scalar} "
            f"stablehlo.return %s : {scalar} }})"
        )
        attributes = f"{groups}, use_global_device_ids"
        if kind == "reduce_scatter":
            shape[dim] //= devices
            attributes = f"scatter_dimension = {dim} : i64, {attributes}"
    text = f'"stablehlo.{kind}"({x.name}) <{{{attributes}}}>{body} : ({x.type}) -> {tensor_type(shape, x.dtype)}'
    return m.op(text, shape, x.dtype)


def sharded_matmul_text(row: OpRow) -> str:
    """One device's part of a product: the whole of it; all rows of `w` gathered; or partial sums added up."""
    devices = row.number("devices")
    rows, columns, depth = (row.number(name) for name in "MNK")
    if any(size % devices for size in (rows, columns, depth)):
        raise UnsupportedError(f"{rows}x{columns}x{depth} does not divide over {devices} devices", where=row.id)
    m = ModuleText("matmul", devices)
    if row.op == "matmul_replicated":
        return m.finish(m.dot(m.argument((rows, depth), row.element), m.argument((depth, columns), row.element)))
    if row.op == "matmul_sharded_rowcol":
        x = m.argument((rows // devices, depth), row.element)
        w = m.argument((depth, columns // devices), row.element)
        return m.finish(m.dot(x, collective(m, "all_gather", w, devices, dim=1)))
    x = m.argument((rows, depth // devices), row.element)
    w = m.argument((depth // devices, columns), row.element)
    return m.finish(collective(m, "all_reduce", m.dot(x, w), devices))
