"""Partitioning with Shardy's passes inside jaxlib: no devices, any mesh, milliseconds; in a child process.

The result is the program of one device in Shardy's own terms: global types, a sharding on every op, and explicit
`sdy.all_gather`, `sdy.reduce_scatter`, `sdy.all_reduce`, `sdy.all_to_all`, `sdy.collective_permute` ops whose groups
are mesh axes. The workload reader divides the types by their shardings.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from meshcast.base import Child, ChildCrashedError, ChildFailedError, MeshcastError, UnsupportedError
from meshcast.partition.divisibility import check_divisible
from meshcast.partition.flatten import flatten
from meshcast.partition.meshes import is_sharded, target_mesh
from meshcast.programs import Program, mlir, module_mesh

_child = Child("meshcast.partition._shardy_child")


def start() -> None:
    """Starts Shardy's process before there is a program for it."""
    _child.start()


def partition(program: Program, *, mesh: Mapping[str, int] | None = None, optimise: bool = True) -> Program:
    """The program of one device, with explicit collectives; unsharded programs come back flattened.

    Args:
        program: A captured program.
        mesh: Axis sizes that replace the program's own; unnamed axes keep theirs.
        optimise: Merge collectives as XLA's later passes do; False stops where XLA's partitioner itself stops.
    """
    target = target_mesh(program, mesh)
    if program.partitioned or not is_sharded(program):
        return program if program.partitioned else flatten(program)
    if target.size == 1:
        return flatten(replace(program, mesh=target))
    check_divisible(program, target)
    try:
        data = _answer(program.bytecode, tuple((mesh or {}).items()), optimise)
    except ChildFailedError as error:
        raise _refusal(str(error), program.name) from None
    except ChildCrashedError as error:
        raise UnsupportedError(
            f"Shardy aborted on this program ({error})",
            where=program.name,
            fix="constrain the sharding where it is ambiguous, or try XLA's partitioner (--partitioner xla)",
        ) from None
    module = mlir.parse_module(data, where=program.name)
    return replace(program, module=module, mesh=module_mesh(module), partitioned=True)


def ask_ahead(program: Program) -> None:
    """Has a program partitioned that will be asked for; what is wrong with it is said then."""
    if not program.partitioned and is_sharded(program) and target_mesh(program, None).size > 1:
        with contextlib.suppress(ChildFailedError, ChildCrashedError):
            _answer(program.bytecode, (), True)


@lru_cache(maxsize=64)
def _answer(bytecode: bytes, mesh: tuple[tuple[str, int], ...], optimise: bool) -> bytes:
    """The child's, kept: a pipeline asks for a forward pass before it can write the backward pass, and then again."""
    asked: dict[str, Any] = {"mesh": dict(mesh) or None, "optimise": optimise, "verify": False}
    try:
        return _child.request(asked, bytecode)
    except ChildCrashedError:  # a pass may have left what the next one cannot take: the verifier says what that is
        return _child.request(asked | {"verify": True}, bytecode)


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
