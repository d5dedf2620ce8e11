"""Which partitioner: Shardy's passes (any mesh, milliseconds), or XLA's own (to check the first one against)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshcast.base import UsageError, expect
from meshcast.partition import shardy, xla_spmd
from meshcast.programs import Program, from_bytes

ROUTES = ("shardy", "xla")


def partition(
    program: Program, *, mesh: Mapping[str, int] | None = None, route: str = "shardy", optimise: bool = True
) -> Program:
    """The program of one device, with explicit collectives; unsharded programs come back flattened.

    Args:
        program: A captured program.
        mesh: Axis sizes that replace the program's own; unnamed axes keep theirs.
        route: `shardy`, or `xla` for XLA's SPMD partitioner with virtual CPU devices (up to a few thousand).
        optimise: Shardy only: merge collectives as XLA's later passes do; False stops where XLA's partitioner stops.

    Raises:
        UsageError: It is no program, or there is no such route.
    """
    expect(program, Program, "a meshcast.Program", where="program", fix="such as what meshcast.load gives")
    expect(mesh, (Mapping, type(None)), "a dict of sizes or None", where="mesh", fix="such as {'data': 8}")
    if route == "shardy":
        return shardy.partition(program, mesh=mesh, optimise=optimise)
    if route != "xla":
        raise UsageError(f"no partitioner {route!r}", where="--partitioner", fix="one of " + ", ".join(ROUTES))
    if mesh:
        raise UsageError(
            "--mesh cannot be overridden on XLA's route", where="--partitioner xla", fix="capture it with that mesh"
        )
    if program.partitioned or program.devices == 1:
        return shardy.partition(program)
    text = xla_spmd.partition(program.bytecode, devices=program.devices, where=program.name)
    local = from_bytes(text.encode(), name=program.name, where=program.source)
    same = len(local.arguments) == len(program.arguments)
    return replace(
        local,
        mesh=program.mesh,
        sha256=program.sha256,
        arguments=program.arguments if same else local.arguments,
        partitioned=True,
    )
