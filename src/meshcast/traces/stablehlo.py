"""The program itself as StableHLO, with or without the names in it.

An anonymous program has the ops, types and shardings of the original, so that every model answers for it as before. Left out
are names of functions, arguments, results and mesh axes, debug locations, notes for other tools, and the values of constants:
floating-point numbers other than 0, 1, -1 and the infinities become powers of two in the order in which they come up, lists of
numbers one number. Equal constants stay equal and others different, as compilers share equal ones. Single integers stay, as loops
count with them. Which argument is a weight was told by its name, so an anonymous program does not say it.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from meshcast.base import UnsupportedError
from meshcast.programs import Program, entry_function, ir, operations, parse_module, string_of
from meshcast.workload import is_library_target

SUFFIXES = (".mlir", ".mlir.gz")
POWERS = 64  # of two, that ordinary numbers become: types of 16 bits hold them
# Notes on ops that predictions depend on, and that hold no names; all others with a dialect's prefix go.
KEPT = frozenset(
    {
        "mhlo.num_partitions", "mhlo.num_replicas", "mhlo.known_trip_count", "mhlo.input_output_alias", "tf.aliasing_output",
        "jax.buffer_donor", "meshcast.trip_count", "meshcast.cost",
    }
)  # fmt: skip
_SYMBOL = re.compile(r'@(?:"((?:[^"\\]|\\.)*)"|([A-Za-z_][\w$.-]*))')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def program_text(program: Program, *, anonymise: bool) -> str:
    """A captured program as text that `predict` takes.

    Raises:
        UnsupportedError: It has parts that mean nothing without their names.
    """
    # A copy: the module is read-only to us.
    module = parse_module(program.bytecode, where=program.source)
    if not anonymise:
        return str(module.operation.get_asm(enable_debug_info=True))
    with module.context, ir.Location.unknown():
        entry = _symbol(entry_function(module, where=program.source).operation)
        symbols: dict[str, str] = {}
        axes: dict[str, str] = {}
        numbers: dict[str, int] = {}  # of constants, in the order in which they come up
        for operation in (module.operation, *operations(module.operation)):
            if (name := _symbol(operation)) is not None:
                symbols[name] = "main" if name == entry else f"s{len(symbols)}"
            if operation.name == "sdy.mesh":
                for axis in re.findall(r'"([^"]*)"\s*=', str(operation.attributes["mesh"])):
                    axes.setdefault(axis, f"a{len(axes)}")
            _anonymise(operation, numbers)
        text = str(module.operation.get_asm(enable_debug_info=False))
    text = _SYMBOL.sub(lambda found: f"@{symbols.get(found[1] or found[2], found[0][1:])}", text)
    return _QUOTED.sub(lambda found: f'"{axes.get(found[1], found[1])}"', text)


def _symbol(operation: Any) -> str | None:
    if "sym_name" not in operation.attributes:
        return None
    return string_of(operation.attributes["sym_name"])


def _anonymise(operation: Any, numbers: dict[str, int]) -> None:
    """Takes away what an op says about where it comes from."""
    attributes = operation.attributes
    names = [attributes[index].name for index in range(len(attributes))]
    if "meshcast.name" in names:
        raise UnsupportedError(
            "a compiled program (HLO) is told by the names of its launches", where="--anonymise",
            fix="pass the StableHLO of the program, or use --format chakra",
        )  # fmt: skip
    for name in names:
        if name in ("arg_attrs", "res_attrs"):
            attributes[name] = ir.ArrayAttr.get([_kept(ir.DictAttr(each)) for each in ir.ArrayAttr(attributes[name])])
        elif "." in name and not _stays(name):
            del attributes[name]
    if operation.name == "stablehlo.constant":
        attributes["value"] = _without_values(attributes["value"], numbers)
    elif operation.name == "stablehlo.custom_call":
        target = string_of(attributes["call_target_name"])
        if not is_library_target(target):
            raise UnsupportedError(
                f"custom call {target!r} is known by its name alone", where="--anonymise", fix="use --format chakra"
            )
    elif operation.name == "stablehlo.composite":
        name = string_of(attributes["name"])
        if not name.startswith("chlo."):
            attributes["name"] = ir.StringAttr.get("meshcast.composite")


def _stays(name: str) -> bool:
    return name in KEPT or name.startswith("sdy.")


def _kept(marks: Any) -> Any:
    named = [marks[index] for index in range(len(marks))]
    return ir.DictAttr.get({each.name: each.attr for each in named if _stays(each.name)})


def _without_values(value: Any, numbers: dict[str, int]) -> Any:
    """A constant of the same type that holds no number of the program."""
    kind = ir.ShapedType(value.type)
    element = kind.element_type
    single = _single(value, kind)
    if isinstance(element, ir.FloatType):
        if single is not None and (single in (0.0, 1.0, -1.0) or math.isinf(single) or math.isnan(single)):
            return value
        which = numbers.setdefault(str(value) if single is None else repr(single), len(numbers))
        return ir.DenseElementsAttr.get_splat(value.type, ir.FloatAttr.get(element, 2.0 ** -(1 + which % POWERS)))
    if isinstance(element, ir.IntegerType) and single is None:
        return ir.DenseElementsAttr.get_splat(value.type, ir.IntegerAttr.get(element, 0))
    return value


def _single(value: Any, kind: Any) -> float | None:
    """The one number that a constant holds; None where there are several, or it cannot be read."""
    if not isinstance(value, ir.DenseElementsAttr):
        return None
    if value.is_splat:
        found = value.get_splat_value()
        return float(getattr(found, "value", math.nan)) if hasattr(found, "value") else None
    if math.prod(kind.shape) != 1:
        return None
    return float(np.asarray(value).reshape(-1)[0])
