"""How many devices run a program, of those that are asked for."""

from __future__ import annotations

from meshcast.base import Mesh, UsageError
from meshcast.workload import Workload


def device_count(workload: Workload, asked: int | None) -> tuple[int, tuple[str, ...]]:
    """The devices of a program and what should be said about them; where none are asked for, those of its mesh.

    Raises:
        UsageError: It is sharded over another number.
    """
    if asked is None or asked == workload.devices:
        return workload.devices, ()
    if asked < 1:
        raise UsageError(f"cannot run on {asked} devices", where="--devices", fix="ask for at least 1")
    if workload.devices == 1:
        alike = f"all {asked} devices run it alike, each on a batch of its own, without communication"
        return asked, (f"the program is not sharded: {alike}; --plan shares a model out",)
    raise UsageError(
        f"the program is sharded over {workload.devices} devices ({workload.mesh}), not {asked}",
        where="--devices",
        fix=f"change the mesh, e.g. --mesh {_rescaled(workload.mesh, asked)}",
    )


def _rescaled(mesh: Mesh, devices: int) -> str:
    """A mesh of that many devices with the same axes: the first axis that can takes the change."""
    for name, size in mesh.axes:
        others = mesh.size // size
        if devices % others == 0:
            return str(Mesh.of({**mesh.sizes, name: devices // others}))
    return str(mesh)
