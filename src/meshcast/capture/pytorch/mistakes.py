"""What went wrong while a module was traced, in the user's own terms: the operator, and the line that called it."""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path

from meshcast.errors import InfeasibleError, InputError, MeshcastError, UnsupportedError, UsageError

_LIBRARIES = ("torch", "torchax", "jax", "jaxlib", "meshcast", "numpy")
_OPERATOR = re.compile(r"Operator with name (\S+) has no lowering")


def user_line(error: BaseException) -> str | None:
    """The innermost `file:line (code)` of the error's way that lies outside the libraries."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not _in_library(frame.filename):
            code = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
            return f"{frame.filename}:{frame.lineno}" + (f" ({code})" if code else "")
    return None


def _in_library(filename: str) -> bool:
    parts = Path(filename).parts
    if filename.startswith("<"):
        return True
    for folder in ("site-packages", "dist-packages", "src"):
        if folder in parts:
            after = parts[len(parts) - parts[::-1].index(folder) :]
            if after and after[0].removesuffix(".py") in _LIBRARIES:
                return True
    return False


def explained(error: Exception, label: str) -> MeshcastError:
    """The error as one of ours, with the user's line; errors of ours get their place."""
    line = user_line(error)
    where = line or label
    if isinstance(error, MeshcastError):
        if error.where is None:
            return type(error)(error.message, where=where, fix=error.fix)
        return error
    kind, text = type(error).__name__, str(error).strip()
    first = text.split("\n")[0][:400]
    operator = _OPERATOR.search(text)
    if operator:
        return UnsupportedError(
            f"the operator {operator[1]} cannot be lowered to StableHLO",
            where=where,
            fix="write it with other operators, or capture the module without this part",
        )
    if kind in _DATA_DEPENDENT:
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


_DATA_DEPENDENT = frozenset(
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
