"""What went wrong while a module was traced, in the user's own terms: the operator, and the line that called it."""

from __future__ import annotations

import re
import traceback
from typing import Any

from meshcast.base import InfeasibleError, InputError, MeshcastError, UnsupportedError, UsageError
from meshcast.programs.user_lines import called_by_user, user_line

_OPERATOR = re.compile(r"Operator with name (\S+) has no lowering")
_COLLECTIVES = ("c10d::", "_c10d_functional::")
_OTHER_TRACERS = ("torch._dynamo", "torch._higher_order_ops", "torch.nn.attention.flex_attention")


class OperandError(Exception):
    """Operands that an operator does not take, in PyTorch's own words; no TypeError, which `@` and `+` swallow."""


def explained(error: Exception, label: str, module: Any = None) -> MeshcastError:
    """The error as one of ours, with the user's line, or the submodule where no line is the user's."""
    line = user_line(error)
    where = line or _submodule(error, label, module)
    if isinstance(error, MeshcastError):
        if error.where is None:
            return type(error)(error.message, where=where, fix=error.fix)
        return error
    kind, text = type(error).__name__, str(error).strip()
    first = text.split("\n")[0][:400]
    operator = _OPERATOR.search(text)
    if operator:
        return _no_lowering(operator[1], where)
    called = called_by_user(error)
    if called and called.startswith(_OTHER_TRACERS):
        return UnsupportedError(
            f"{called} runs under a tracer of its own, which cannot be lowered to StableHLO",
            where=where,
            fix="write it with plain operators (torch.where, scaled_dot_product_attention, a loop), or leave it out",
        )
    if isinstance(error, OperandError):
        return InputError(first, where=where, fix="give example inputs of the shapes and dtypes that the module takes")
    if kind in DATA_DEPENDENT:
        return UnsupportedError(
            f"what runs, or a shape, depends on the values of tensors: {first}",
            where=where,
            fix="a program has fixed shapes and one path: use torch.where, masks or a padded size; .item(), bool() "
            "and boolean indexing need values",
        )
    if "does not require grad" in text:
        return UsageError(
            "backward() was called: gradients are not recorded here",
            where=where,
            fix="give the module and train=True with a loss; the backward pass and the optimizer are added",
        )
    if re.search(r"divisible|evenly divide", text) and re.search(r"shard|mesh", text, re.IGNORECASE):
        return InfeasibleError(
            f"the mesh does not divide the program: {first}",
            where=where,
            fix="choose axis sizes that divide the sharded dimensions",
        )
    said = f"{kind} while tracing: {first}"
    if isinstance(error, (TypeError, NameError)) and line is None:
        return UsageError(said, where=where, fix="check the module and its arguments")
    return InputError(said, where=where, fix="make the module run on its example inputs first")


def _no_lowering(operator: str, where: str) -> UnsupportedError:
    if operator.startswith(_COLLECTIVES):
        return UnsupportedError(
            f"the collective {operator} was called by hand: the module sees the tensors of all devices together",
            where=where,
            fix="leave it out: collectives come from placements (mesh and plan, DTensors, parallelize_module, fully_shard)",
        )
    return UnsupportedError(
        f"the operator {operator} cannot be lowered to StableHLO",
        where=where,
        fix="write it with other operators, or capture the module without this part",
    )


def _submodule(error: Exception, label: str, module: Any) -> str:
    """The innermost submodule that ran, by its name in the whole."""
    known = {id(each): name for name, each in module.named_modules()} if hasattr(module, "named_modules") else {}
    ran = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    found = next((each for each in reversed(ran) if known.get(id(each))), None)
    return label if found is None else f"{label}: submodule {known[id(found)]} ({found})"


DATA_DEPENDENT = frozenset(
    {
        "ConcretizationTypeError",
        "TracerBoolConversionError",
        "TracerIntegerConversionError",
        "TracerArrayConversionError",
        "NonConcreteBooleanIndexError",
        "DataDependentOutputException",
        "GuardOnDataDependentSymNode",
        "UserError",
    }
)
