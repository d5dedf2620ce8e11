"""Dynamic dimensions made static: by their bounds, or by the sizes the user gives with `--dim`.

A bounded dimension (`tensor<?x8xf32, #stablehlo.bounds<16, ?>>`) is read at its bound by the workload reader and needs
nothing here. An unbounded one is refined once its size is known: StableHLO's pass gives the arguments their sizes, and
XLA's refinement inside jaxlib, the one that JAX itself runs on exported programs, carries them through the program,
checks the shape assertions and drops them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from jaxlib.mlir import passmanager

from meshcast.base import UnsupportedError, UsageError
from meshcast.programs.diagnostics import collected
from meshcast.programs.mlir import ir, parse_module, stablehlo, to_bytecode
from meshcast.programs.program import entry_function

DYNAMIC = ir.ShapedType.get_dynamic_size()
_PLACE = re.compile(r"arg\d+\.\d+")


class Symbol(Protocol):
    """A symbolic size that an export kept, such as `2*b`."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Names that it depends on."""
        ...

    def evaluate(self, dims: Mapping[str, int]) -> int:
        """The size where its variables have these values."""
        ...


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


def refine(
    module: Any, *, dims: Mapping[str, int], where: str, symbols: Mapping[tuple[int, int], Symbol] | None = None
) -> Any:
    """The module with every unbounded dimension replaced by its size; the same module where there is none.

    Args:
        module: The MLIR module.
        dims: Sizes by symbolic name (`B`), or by place (`arg0.1`: argument 0, dimension 1).
        where: For messages.
        symbols: Symbolic size of `(argument, dimension)`, where an export kept it.

    Raises:
        UsageError: A dimension without a size, or a size without a dimension.
        UnsupportedError: The sizes of the arguments do not give those of the program.
    """
    main = entry_function(module, where=where)
    arguments = list(main.operation.regions[0].blocks[0].arguments)
    unknown = {index: found for index, value in enumerate(arguments) if (found := unbounded_dimensions(value.type))}
    if not unknown and not _is_polymorphic(module):
        refuse_unused(dims, (), where=where)
        return module
    types = [str(value.type) for value in arguments]
    alone = all(len(found) == 1 for found in unknown.values())
    names: dict[str, None] = {}  # what --dim may name here, in order
    used: set[str] = set()
    for index, found in unknown.items():
        value_type = arguments[index].type
        shape = list(value_type.shape)
        for dim in found:
            symbol = (symbols or {}).get((index, dim))
            shape[dim], by = _size(index, dim, dims, symbol, where, alone=alone)
            used.update(by)
            names.update(dict.fromkeys((*by, f"arg{index}.{dim}")))
        with module.context, ir.Location.unknown():
            types[index] = str(ir.RankedTensorType.get(shape, value_type.element_type, value_type.encoding))
    refuse_unused({name: size for name, size in dims.items() if name not in used}, names, where=where)
    return _refined(module, types, where=where)


def refuse_unused(dims: Mapping[str, int], names: Iterable[str], *, where: str) -> None:
    """Refuses sizes that nothing in the program asked for: whoever gave them believes that they count.

    Args:
        dims: The sizes that were not used.
        names: What could have been named.
        where: The program, for messages.
    """
    if not dims:
        return
    said = ", ".join(f"{name}={size}" for name, size in dims.items())
    known = ", ".join(names)
    raise UsageError(
        f"--dim {said} names no dynamic dimension of the program",
        where=where,
        fix=f"its dynamic dimensions: {known}" if known else "leave it out: every dimension has a size or a bound",
    )


def _is_polymorphic(module: Any) -> bool:
    """True for an export whose sizes are symbolic within, though its arguments may be static."""
    attributes = module.operation.attributes
    name = "jax.uses_shape_polymorphism"
    return name in attributes and str(attributes[name]) == "true"


def _size(
    index: int, dim: int, dims: Mapping[str, int], symbol: Symbol | None, where: str, *, alone: bool
) -> tuple[int, Iterable[str]]:
    """The size of one dimension, and the names in `dims` that it comes from."""
    place = f"arg{index}.{dim}"
    if place in dims:
        return dims[place], (place,)
    if symbol is not None:
        for name in symbol.variables:
            if name not in dims:
                raise UsageError(
                    f"argument {index} has the symbolic dimension {name!r} without a size",
                    where=where,
                    fix=f"give it: --dim {name}=32",
                )
        return symbol.evaluate(dims), symbol.variables
    names = [name for name in dims if not _PLACE.fullmatch(name)]
    if alone and len(names) == 1:
        return dims[names[0]], names  # one unknown an argument, one size given: a batch size, nothing else it can mean
    raise UsageError(
        f"dimension {dim} of argument {index} is dynamic without a bound", where=where, fix=f"give it: --dim {place}=32"
    )


def _refined(module: Any, types: Sequence[str], *, where: str) -> Any:
    from jaxlib import _jax

    arguments = f"builtin.module(stablehlo-refine-arguments{{types={','.join(types)}}})"
    try:
        with module.context, collected(module.context) as messages:
            passmanager.PassManager.parse(arguments).run(module.operation)
            data = _jax.mlir.refine_polymorphic_shapes(to_bytecode(module), enable_shardy=True)
    except (ir.MLIRError, ValueError, RuntimeError) as error:
        reason = str(error).strip() or "; ".join(messages)
        raise _refusal(reason, where) from None
    return parse_module(data, where=where)


def _refusal(reason: str, where: str) -> UsageError | UnsupportedError:
    asserted = re.search(r"Input shapes do not match[^.]*\.\s*(.*?)(?: Please see|$)", reason, re.DOTALL)
    if asserted:
        return UsageError(
            f"the sizes break what the program was exported for: {asserted[1].strip()}",
            where=where,
            fix="choose other --dim sizes",
        )
    first = next((line for line in reason.splitlines() if "error:" in line), reason.split("\n", 1)[0])
    return UnsupportedError(
        f"the program's dynamic shapes cannot be worked out from its arguments: {first.strip()}",
        where=where,
        fix="check the --dim sizes, or export the program with static shapes",
    )
