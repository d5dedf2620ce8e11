"""Branches that a program chooses by a constant: the one that runs is known, and all compilers put it in the branch's place.

Libraries write a branch for every platform, and the number of the one that a program is lowered for is a constant, itself chosen
by another such branch (`jax.lax.platform_dependent`), handed into functions and loops and out of them again. XLA's
conditional_simplifier inlines the branch that is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshcast.programs import ir, symbol_of
from meshcast.workload.index_values import Frame
from meshcast.workload.trip_count import constant_truth, constant_value

_CHOICES = ("stablehlo.case", "stablehlo.if")


def chosen_region(operation: Any, frames: Sequence[Frame], functions: Mapping[str, Any]) -> Any | None:
    """The region of a `case` or `if` that always runs, or None where that depends on data.

    Args:
        operation: The branch.
        frames: The bodies around it whose arguments are an op's operands, outermost first.
        functions: The module's functions by name.
    """
    regions = operation.regions
    origin = _Origins(frames, functions).of(operation.operands[0])
    if operation.name == "stablehlo.if":
        truth = constant_truth(origin)
        return None if truth is None else regions[0 if truth else 1]
    number = constant_value(origin)
    if number is None:
        return None
    return regions[number if 0 <= number < len(regions) else len(regions) - 1]  # the last one is the default


class _Origins:
    """Where values come from that calls, loops and chosen branches only hand on."""

    def __init__(self, frames: Sequence[Frame], functions: Mapping[str, Any]) -> None:
        self._frames = frames
        self._functions = functions

    def of(self, value: Any) -> Any:
        """The value that this one always is."""
        while (before := self._before(value)) is not None:
            value = before
        return value

    def _before(self, value: Any) -> Any | None:
        """The value that was handed on as this one, or None where an op has made it."""
        owner = value.owner
        if isinstance(owner, ir.Block):
            return self._given(value, owner)
        made, place = owner.operation, ir.OpResult(value).result_number
        if made.name == "func.call":
            block = self._functions[symbol_of(made.attributes["callee"])].operation.regions[0].blocks[0]
            returned = _returned(block, place)
            if returned.owner == block:
                return made.operands[ir.BlockArgument(returned).arg_number]
            return returned
        if made.name in _CHOICES:
            region = chosen_region(made, self._frames, self._functions)
            return _returned(region.blocks[0], place) if region is not None else None
        return None

    def _given(self, argument: Any, block: Any) -> Any | None:
        """What a body was given for its argument: of a loop, where every turn hands on the same."""
        place = ir.BlockArgument(argument).arg_number
        around = block.owner.operation
        if around.name == "stablehlo.while":
            kept = _returned(around.regions[1].blocks[0], place)
            same = kept.owner == block and ir.BlockArgument(kept).arg_number == place
            return around.operands[place] if same else None
        for frame in reversed(self._frames):
            if frame.block == block:
                return frame.operation.operands[place]
        return None


def _returned(block: Any, place: int) -> Any:
    *_, last = block.operations
    return last.operation.operands[place]
