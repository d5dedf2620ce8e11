"""Shardings that are not written in Shardy's own ops: brought over where that is exact, refused where it is not.

HLO text and some `jax.export` artifacts carry Shardy's attributes as strings beside XLA's (`xla.sdy.meshes`,
`xla.sdy.sharding`): jaxlib has the pass that reads them back. Programs lowered for GSPMD (`mhlo.sharding`,
`@Sharding` without a mesh, as JAX emitted before Shardy) name no axes. Reading them as they stand would predict the
whole program on every device, so they are refused.
"""

from __future__ import annotations

import math
import re
from typing import Any

from jaxlib.mlir import passmanager

from meshcast.base import UnsupportedError
from meshcast.programs.mlir import ir, operations, sdy, string_of
from meshcast.programs.program import entry_function

_COLLECTIVES = frozenset(
    f"stablehlo.{name}"
    for name in (
        "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "reduce_scatter",
    )
)  # fmt: skip
_MANUAL = frozenset(
    ("SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape")
)
_TILES = re.compile(r"devices=\[([\d,]+)\]")
_WHOLE = re.compile(r"\{(replicated|manual|unknown|unreduced|maximal device=\d+)?\}")
_SHARDY_MESHES = "xla.sdy.meshes"


def bring_over_shardings(module: Any, *, where: str) -> None:
    """Rewrites the module in place so that its shardings are Shardy's, if it has any.

    Raises:
        UnsupportedError: It is sharded, not partitioned, and the shardings cannot be brought over.
    """
    if any(op.operation.name == "sdy.mesh" for op in module.body.operations):
        return
    if _SHARDY_MESHES in str(_attribute(module.operation, "mhlo.frontend_attributes", "")):
        _read_shardy_strings(module, where)
        return
    main = entry_function(module, where=where)
    if _partitions(module) > 1:
        _run(module, "sdy-lift-inlined-meshes")
        if any(op.operation.name == "sdy.mesh" for op in module.body.operations):
            return
    elif "mhlo.sharding" not in str(_attribute(main, "arg_attrs", "")) + str(_attribute(main, "res_attrs", "")):
        return
    _refuse_gspmd(module, main, where)


def _read_shardy_strings(module: Any, where: str) -> None:
    for operation in operations(module.operation):
        if _target(operation) in _MANUAL:
            raise UnsupportedError(
                "a shard_map region in HLO's spelling cannot be read back",
                where=where,
                fix="pass the StableHLO of the program (jax.jit(f).lower(...).as_text()) instead of its HLO",
            )
    _run(module, "xla-sdy-round-trip-import-shardy-attrs")
    with module.context, ir.Location.unknown():
        for operation in [op for op in operations(module.operation) if _target(op) == "Sharding"]:
            sharding = _attribute(operation, "sdy.sharding", None)
            value = operation.operands[0]
            if sharding is not None:
                value = ir.Operation.create(
                    "sdy.sharding_constraint",
                    results=[operation.results[0].type],
                    operands=[value],
                    attributes={"sharding": sdy.TensorShardingPerValueAttr(sharding).shardings[0]},
                    loc=operation.location,
                    ip=ir.InsertionPoint(operation),
                ).result
            operation.results[0].replace_all_uses_with(value)
            operation.erase()


def _refuse_gspmd(module: Any, main: Any, where: str) -> None:
    marks = [str(_attribute(ir.DictAttr(each), "mhlo.sharding", "")) for each in _attribute(main, "arg_attrs", ())]
    marks += [str(_attribute(ir.DictAttr(each), "mhlo.sharding", "")) for each in _attribute(main, "res_attrs", ())]
    collectives = manual = False
    for operation in operations(module.operation):
        collectives = collectives or operation.name in _COLLECTIVES
        target = _target(operation)
        manual = manual or target in _MANUAL
        if target == "Sharding":
            marks.append(str(_attribute(operation, "mhlo.sharding", "")))
            manual = manual or _is_split(marks[-1])
    if manual or (not collectives and any(map(_is_split, marks))):
        raise UnsupportedError(
            "the program is sharded with GSPMD annotations (mhlo.sharding), which name no mesh axes",
            where=where,
            fix="lower it again with Shardy (jax_use_shardy_partitioner, the default since JAX 0.7), or pass the "
            "HLO after XLA's partitioner",
        )


def _is_split(mark: str) -> bool:
    """True for a sharding that puts different parts on different devices; serialised ones count as such."""
    text = mark.strip('"')
    if not text or _WHOLE.fullmatch(text):
        return False
    tiles = _TILES.search(text)
    if tiles is None:
        return True
    sizes = [int(size) for size in tiles[1].split(",")]
    copies = sizes[-1] if "last_tile_dim_replicate" in text else 1
    return math.prod(sizes) > copies


def _partitions(module: Any) -> int:
    count = _attribute(module.operation, "mhlo.num_partitions", None)
    return int(ir.IntegerAttr(count).value) if count is not None else 1


def _run(module: Any, name: str) -> None:
    with module.context:
        passmanager.PassManager.parse(f"builtin.module({name})").run(module.operation)


def _attribute(holder: Any, name: str, default: Any) -> Any:
    attributes = getattr(holder, "attributes", holder)
    if name in attributes:
        return attributes[name]
    return default


def _target(operation: Any) -> str:
    if operation.name != "stablehlo.custom_call":
        return ""
    return string_of(operation.attributes["call_target_name"])
