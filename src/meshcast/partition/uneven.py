"""Shares that are not all of one size, kept as a program has them at its border.

The last of Shardy's propagation passes takes axes from arguments and results until the rest divides them, so that nobody needs
a fill, and everything that is stored would be gathered and cut again on its way in and out. A program that is marked as uneven
has its fill (`programs.uneven`): its shardings are put back.
"""

from __future__ import annotations

from typing import Any

from meshcast.programs import UNEVEN, entry_function, ir

Border = dict[str, list[Any]]
_SHARDING = "sdy.sharding"


def border_of(module: Any) -> Border:
    """The shardings of a marked program's arguments and results; nothing of others."""
    if UNEVEN not in module.operation.attributes:
        return {}
    attributes = entry_function(module, where="program").attributes
    return {
        name: [_attributes(marks).get(_SHARDING) for marks in attributes[name]]
        for name in ("arg_attrs", "res_attrs")
        if name in attributes
    }


def put_back(module: Any, border: Border) -> None:
    """Gives arguments and results the shardings that they had."""
    attributes = entry_function(module, where="program").attributes
    for name, shardings in border.items():
        told = [
            _attributes(had) | ({} if one is None else {_SHARDING: one})
            for had, one in zip(attributes[name], shardings, strict=True)
        ]
        attributes[name] = ir.ArrayAttr.get([ir.DictAttr.get(each) for each in told])


def _attributes(marks: Any) -> dict[str, Any]:
    named: Any = ir.DictAttr(marks)
    return {each.name: each.attr for each in named}
