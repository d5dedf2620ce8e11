"""What only the TPU compiler's programs have, in terms that StableHLO knows: padded tiles and mixed types."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from meshcast.programs.hlo_lines import Instruction, array, elements, shape_text, successor

# Ops whose floating-point operands StableHLO wants in the result's type.
OF_ONE_TYPE = frozenset(
    (
        "abs", "add", "broadcast", "clamp", "concatenate", "cosine", "divide", "dynamic-slice", "dynamic-update-slice",
        "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "maximum", "minimum", "multiply",
        "negate", "pad", "power", "remainder", "reshape", "reverse", "round-nearest-even", "rsqrt", "select", "sign",
        "sine", "slice", "sqrt", "subtract", "tanh", "transpose",
    )
)  # fmt: skip
_FLOAT = re.compile(r"b?f\d")


def padded_view(instruction: Instruction) -> Instruction:
    """A bitcast to the bytes of an array: tiles are padded, so that there are more of them than elements account for."""
    view = successor(instruction, "custom-call", instruction.operands)
    view.attributes["custom_call_target"] = '"meshcast.padded_view"'
    return view


def exact_reduction(instruction: Instruction, shape_of: Callable[[str], str]) -> list[Instruction]:
    """TPU programs round a reduction's results as they are stored; StableHLO wants the type of the initial values."""
    shapes = elements(instruction.shape)
    initial = [array(shape_of(operand)) for operand in instruction.operands[len(instruction.operands) // 2 :]]
    dtypes = [each.dtype if each else shape.split("[")[0] for each, shape in zip(initial, shapes, strict=True)]
    if all(shape.startswith(f"{d}[") for shape, d in zip(shapes, dtypes, strict=True)):
        return [instruction]
    exact = [f"{d}[{shape.partition('[')[2]}" for shape, d in zip(shapes, dtypes, strict=True)]
    if not instruction.shape.startswith("("):
        whole = replace(instruction, name=f"{instruction.name}.exact", shape=exact[0], root=False)
        return [whole, successor(instruction, "convert", [f"%{whole.name}"])]
    whole = replace(instruction, name=f"{instruction.name}.exact", shape=f"({', '.join(exact)})", root=False)
    made = [whole]
    for position, shape in enumerate(shapes):
        part = Instruction(
            name=f"{instruction.name}.part{position}",
            shape=exact[position],
            opcode="get-tuple-element",
            operands=[f"%{whole.name}"],
            attributes={"index": str(position)},
        )
        made.append(part)
        if exact[position] != shape:
            made.append(
                Instruction(name=f"{part.name}.rounded", shape=shape, opcode="convert", operands=[f"%{part.name}"])
            )
        shapes[position] = made[-1].name
    together = successor(instruction, "tuple", [f"%{name}" for name in shapes])
    return [*made, together]


def of_one_type(instruction: Instruction, shape_of: Callable[[str], str]) -> list[Instruction]:
    """Operands of another type than the result are converted first, as StableHLO asks."""
    target = array(instruction.shape)
    made: list[Instruction] = []
    for position, operand in enumerate(instruction.operands):
        source = array(shape_of(operand))
        if source is None or target is None or source.dtype == target.dtype:
            continue
        if not (_FLOAT.match(source.dtype) and _FLOAT.match(target.dtype)):
            continue  # indices and predicates
        shape = shape_text(target.dtype, source.sizes)
        name = f"{instruction.name}.operand{position}"
        made.append(Instruction(name=name, shape=shape, opcode="convert", operands=[operand]))
        instruction.operands[position] = f"%{name}"
    return [*made, instruction]
