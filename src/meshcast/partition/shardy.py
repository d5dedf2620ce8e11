"""Partitioning with Shardy's passes inside jaxlib: no devices, any mesh, milliseconds; in a child process.

The result is the program of one device in Shardy's own terms: global types, a sharding on every op, and explicit
`sdy.all_gather`, `sdy.reduce_scatter`, `sdy.all_reduce`, `sdy.all_to_all`, `sdy.collective_permute` ops whose groups
are mesh axes. The workload reader divides the types by their shardings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from meshcast.capture import mlir
from meshcast.capture.program import Program, module_mesh
from meshcast.child import Child, ChildCrashedError, ChildFailedError
from meshcast.errors import MeshcastError, UnsupportedError, UsageError, nearest
from meshcast.mesh import Mesh
from meshcast.partition.divisibility import check_divisible
from meshcast.partition.flatten import flatten

_child = Child("meshcast.partition._shardy_child")


def partition(program: Program, *, mesh: Mapping[str, int] | None = None, optimise: bool = True) -> Program:
    """The program of one device, with explicit collectives; unsharded programs come back flattened.

    Args:
        program: A captured program.
        mesh: Axis sizes that replace the program's own; unnamed axes keep theirs.
        optimise: Merge collectives as XLA's later passes do; False stops where XLA's partitioner itself stops.
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
    target = _resized(program, mesh)
    if program.partitioned or not _is_sharded(program):
        return program if program.partitioned else flatten(program)
    if target.size == 1:
        return flatten(replace(program, mesh=target))
    check_divisible(program, target)
    header = {"mesh": dict(mesh) if mesh else None, "optimise": optimise}
    try:
        data = _child.request(header, program.bytecode)
    except ChildFailedError as error:
        raise _refusal(str(error), program.name) from None
    except ChildCrashedError as error:
        raise UnsupportedError(
            f"Shardy aborted on this program ({error})",
            where=program.name,
            fix="constrain the sharding where it is ambiguous, or try XLA's partitioner (--partitioner xla)",
        ) from None
    module = mlir.parse(data, where=program.name)
    return replace(program, module=module, mesh=module_mesh(module), partitioned=True)


def _is_sharded(program: Program) -> bool:
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


def _refusal(message: str, where: str) -> MeshcastError:
    first = next(
        (line for line in message.splitlines() if "error" in line),
        message.strip().splitlines()[0] if message.strip() else "",
    )
    return UnsupportedError(
        f"Shardy cannot partition this program: {re.sub(r'[(]callsite.*', '', first).strip()[:400]}",
        where=where,
        fix="see the op named; constrain or re-shard it",
    )
