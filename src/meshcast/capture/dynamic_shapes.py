"""Dynamic dimensions made static: by their bounds, or by the sizes the user gives with `--dim`.

A bounded dimension (`tensor<?x8xf32, #stablehlo.bounds<16, ?>>`) is read at its bound by the workload reader and needs
nothing here. An unbounded one is refined with StableHLO's own passes once its size is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxlib.mlir import passmanager

from meshcast.capture.mlir import ir, parse_error, stablehlo
from meshcast.capture.program import entry_function
from meshcast.errors import UsageError

DYNAMIC = ir.ShapedType.get_dynamic_size()


def unbounded_dimensions(value_type: Any) -> list[int]:
    """Dimensions of a tensor type that have neither a size nor a bound."""
    if not isinstance(value_type, ir.RankedTensorType) or value_type.has_static_shape:
        return []
    bounds = bounds_of(value_type)
    return [d for d, size in enumerate(value_type.shape) if size == DYNAMIC and bounds[d] == DYNAMIC]


def bounds_of(value_type: Any) -> list[int]:
    """The upper bound of each dimension, `DYNAMIC` where there is none."""
    encoding = value_type.encoding
    if encoding is not None and stablehlo.TypeExtensions.isinstance(encoding):
        return list(stablehlo.TypeExtensions(encoding).bounds)
    return [DYNAMIC] * value_type.rank


def refine(module: Any, *, dims: Mapping[str, int], where: str, names: Mapping[tuple[int, int], Any] | None = None) -> Any:
    """The module with every unbounded argument dimension replaced by its size.

    Args:
        module: The MLIR module; changed in place when it has unbounded dimensions.
        dims: Sizes by symbolic name (`B`), or by place (`arg0.1`: argument 0, dimension 1).
        where: For messages.
        names: Symbolic size of `(argument, dimension)`: a function of `dims`, where an export kept it.
    """
    main = entry_function(module, where=where)
    arguments = list(main.operation.regions[0].blocks[0].arguments)
    missing = [(i, d) for i, value in enumerate(arguments) for d in unbounded_dimensions(value.type)]
    if not missing:
        return module
    types = []
    for index, value in enumerate(arguments):
        shape = list(value.type.shape) if isinstance(value.type, ir.RankedTensorType) else None
        if shape is None or not unbounded_dimensions(value.type):
            types.append(str(value.type))
            continue
        for dim in unbounded_dimensions(value.type):
            shape[dim] = _size(index, dim, dims, names, where)
        with module.context:
            types.append(str(ir.RankedTensorType.get(shape, value.type.element_type, loc=ir.Location.unknown())))
    return _run_refinement(module, types, where=where)


def _size(index: int, dim: int, dims: Mapping[str, int], names: Mapping[tuple[int, int], Any] | None, where: str) -> int:
    place = f"arg{index}.{dim}"
    if place in dims:
        return dims[place]
    symbol = (names or {}).get((index, dim))
    if symbol is not None:
        try:
            return int(symbol(dims))
        except KeyError as error:
            raise UsageError(
                f"argument {index} has the symbolic dimension {error.args[0]!r} without a size",
                where=where,
                fix=f"give it: --dim {error.args[0]}=32",
            ) from None
    if len(dims) == 1 and names is None:
        return next(iter(dims.values()))  # one unnamed unknown, one size given: nothing else it can mean
    raise UsageError(f"dimension {dim} of argument {index} is dynamic without a bound", where=where, fix=f"give it: --dim {place}=32")


def _run_refinement(module: Any, types: Sequence[str], *, where: str) -> Any:
    pipeline = "builtin.module(stablehlo-refine-arguments{{types={types}}},stablehlo-refine-shapes,stablehlo-canonicalize-dynamism)"
    try:
        with module.context:
            passmanager.PassManager.parse(pipeline.format(types=",".join(types))).run(module.operation)
    except (ir.MLIRError, ValueError) as error:
        raise parse_error(str(error), where=where) from None
    return module
