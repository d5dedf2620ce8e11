"""Another mesh for a program: which sizes may be given, and the module with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshcast.base import Mesh, UsageError, nearest
from meshcast.programs import Program, ir, sdy


def target_mesh(program: Program, mesh: Mapping[str, int] | None) -> Mesh:
    """The program's mesh with the sizes that are asked for.

    Raises:
        UsageError: The program's mesh cannot be changed, or has no such axis.
    """
    if mesh and program.partitioned:
        raise UsageError(
            "the program is partitioned already: its mesh is fixed",
            where="--mesh",
            fix="override it before partitioning",
        )
    if mesh and not program.mesh.axes:
        raise UsageError(
            "the program is not sharded: it has no mesh to override",
            where="--mesh",
            fix="capture it with shardings over an AbstractMesh; --devices N runs N copies of it",
        )
    if mesh and _has_manual_regions(program):
        raise UsageError(
            "the program has shard_map regions, whose local shapes are written for its own mesh",
            where="--mesh",
            fix=f"capture it over the mesh you want (it has {program.mesh})",
        )
    return _resized(program, mesh)


def with_mesh(program: Program, mesh: Mapping[str, int] | None) -> Program:
    """The program, not partitioned yet, over another mesh; the original is left alone."""
    target = target_mesh(program, mesh)
    if not mesh or target == program.mesh:
        return program
    module = program.module.operation.clone()
    with module.context, ir.Location.unknown():
        resize_meshes(module, mesh)
    return replace(program, module=module, mesh=target)


def is_sharded(program: Program) -> bool:
    """Whether the program says how its values are spread over a mesh."""
    return any(op.operation.name == "sdy.mesh" for op in program.module.body.operations)


def _has_manual_regions(program: Program) -> bool:
    pending = [block for op in program.module.body.operations for region in op.regions for block in region.blocks]
    while pending:
        for view in pending.pop().operations:
            if view.operation.name == "sdy.manual_computation":
                return True
            pending.extend(block for region in view.operation.regions for block in region.blocks)
    return False


def _resized(program: Program, mesh: Mapping[str, int] | None) -> Mesh:
    if not mesh:
        return program.mesh
    known = program.mesh.sizes
    for axis in mesh:
        if axis not in known:
            raise UsageError(
                f"the program's mesh ({program.mesh}) has no axis {axis!r}", where="--mesh", fix=nearest(axis, known)
            )
    return Mesh(axes=tuple((name, mesh.get(name, size)) for name, size in program.mesh.axes))


def resize_meshes(module: Any, sizes: Mapping[str, int]) -> None:
    """Gives every mesh of the module new axis sizes: types are global, so any mesh with these axes will do."""
    total = 1
    for op in module.body.operations:
        if op.operation.name != "sdy.mesh":
            continue
        axes = [sdy.MeshAxisAttr(a) for a in sdy.MeshAttr(op.operation.attributes["mesh"]).axes]
        resized = [sdy.MeshAxisAttr.get(a.name, sizes.get(a.name, a.size)) for a in axes]
        op.operation.attributes["mesh"] = sdy.MeshAttr.get(resized)
        count = 1
        for axis in resized:
            count *= axis.size
        total = max(total, count)
    module.operation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), total)
