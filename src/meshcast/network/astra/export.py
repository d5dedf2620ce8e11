"""One collective as ASTRA-sim's inputs: network, system, remote memory, and a trace for every NPU."""

from __future__ import annotations

from pathlib import Path

from meshcast.base import UnsupportedError, UsageError
from meshcast.hardware import Cluster, cluster_network
from meshcast.network.astra.config import ASTRA_KINDS
from meshcast.network.astra.files import RemoteMemory, write_inputs
from meshcast.network.astra.model import preset_system
from meshcast.network.astra.outside import collective_node, write_traces
from meshcast.workload import Collective

WORKLOAD = "workload-configuration"


def export_collective(folder: Path, collective: Collective, cluster: Cluster, devices: int) -> dict[str, Path]:
    """Writes the files of a collective over all of `devices` devices, and gives their paths by ASTRA-sim's flags.

    The workload's path is a prefix: `PREFIX.RANK.et` is there for every NPU.

    Raises:
        UnsupportedError: ASTRA-sim has no such collective or network, or the group is not all devices.
        UsageError: The folder cannot be written to.
    """
    kind = next((known for known in ASTRA_KINDS if known == collective.kind), None)
    if kind is None:
        raise UnsupportedError(
            f"ASTRA-sim has no {collective.kind}", where="--export-astra", fix=f"it has {', '.join(ASTRA_KINDS)}"
        )
    if collective.group.size != devices:
        raise UnsupportedError(
            f"groups of {collective.group.size} among {devices} devices are not exported",
            where="--export-astra", fix="leave out --axes: one group of all devices",
        )  # fmt: skip
    network = cluster_network(cluster, devices)
    system = preset_system(network, cluster.device)
    flags = write_inputs(folder, network, system, RemoteMemory())
    prefix = folder / "collective"
    try:
        write_traces(prefix, network.npus, [collective_node(kind, collective.input_bytes)])
    except OSError as error:
        raise UsageError(f"cannot be written: {error}", where=str(folder), fix="choose another folder") from None
    return {WORKLOAD: prefix, **flags}
