"""What ASTRA-sim is told beside traces: the network and the system layer of the hardware that they are for.

The files are those that `--network astra` computes with, so that ASTRA-sim's answer and the prediction are of one network:
levels of a cluster as dimensions (`hardware.astra`), collectives as in ASTRA-sim's examples (`network.astra.preset_system`).
For its roofline mode, which is off, they have the device's peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshcast.base import MeshcastError
from meshcast.hardware import ASTRA_TECHNOLOGY, Cluster, cluster_network
from meshcast.network import RemoteMemory, input_texts, preset_system

SAID = ("ring", "torus", "full", "switch")  # what ASTRA-sim has, too
TERA = 1e12


def astra_inputs(cluster: Cluster, ranks: int) -> tuple[Mapping[str, tuple[str, str]], tuple[str, ...]]:
    """Names and texts of files by ASTRA-sim's flags, and what should be said about them; none where it has no such network."""
    try:
        network = cluster_network(cluster, ranks)
    except MeshcastError as error:
        return {}, (f"no network and system files for ASTRA-sim: {error.message}",)
    device = cluster.device
    rates = device.matrix_flops or device.vector_flops  # of products: plain cores do them where nothing else does
    peak = max(rates[dtype] for dtype in ("bf16", "f16", "f32") if dtype in rates)
    system = preset_system(network, device)
    system = replace(system, others={**system.others, "roofline-enabled": 0, "peak-perf": peak / TERA})
    other = [level for level in cluster.for_devices(ranks).levels if level.topology not in SAID]
    said = tuple(f"ASTRA-sim has no {level.topology}: level {level.name} is a Switch in its files" for level in other)
    if any(level.technology != ASTRA_TECHNOLOGY for level in cluster.levels):
        said = (
            *said,
            "times of collectives in ASTRA-sim are those of --network astra, not of hardware (docs/astra-sim.md)",
        )
    return input_texts(network, system, RemoteMemory()), said
