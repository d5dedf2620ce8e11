"""The optimizer's state in the host's memory: what the update then takes, and what a device holds of it.

The state comes over the device's host link piece by piece, is updated on the device, and goes back, as JAX programs do it
whose optimizer state has the memory kind `pinned_host` (MaxText). Both directions and the update go on at once, each on
another piece; the first piece has nothing beside its way in and the last one nothing beside its way out:

    t = max(t_update, S / W) + S / (W n)

for S bytes of state in n pieces over a link that moves W bytes/s in each direction, both at once. It begins when the gradients
are reduced: their global norm is needed first. Of the state a device holds two pieces, one that is worked on and one that is
on its way.
"""

from __future__ import annotations

from dataclasses import replace

from meshcast.errors import UnsupportedError
from meshcast.hardware import Device
from meshcast.run import Run

PIECES_HELD = 2
# Of a link's nominal rate, what copies between pinned memory and the device reach in both directions at once: 50.3 of
# 63 GB/s on an H200 behind 16 lanes of PCIe 5.0, in pieces of 16 MiB to 1 GiB (55 GB/s in one direction alone);
# `benchmarks/host_link.py` measures it again.
LINK_SHARE = 0.8


def streaming_seconds(state_bytes: int, pieces: int, update_s: float, device: Device) -> float:
    """Seconds that an update takes longer because its state comes from the host.

    Raises:
        UnsupportedError: Nothing is known of the device's link to its host.
    """
    if not state_bytes:
        return 0.0
    stream = state_bytes / (LINK_SHARE * host_bandwidth(device))
    return max(update_s, stream) + stream / pieces - update_s


def host_bandwidth(device: Device) -> float:
    """Nominal bytes/s to the host's memory, in each direction.

    Raises:
        UnsupportedError: The catalogue does not have it.
    """
    if device.host_bandwidth is None:
        raise UnsupportedError(
            f"offload=optimizer moves state over the link to the host, and no rate of it is known for {device.name}",
            where="--plan",
            fix='give [host] bandwidth = "..." in a device file with base = ' + f'"{device.name}"',
        )
    return device.host_bandwidth


def with_room(run: Run, state_bytes: int) -> Run:
    """The update on a device that has the state's memory too: all of it at once is where it is timed, not where it is."""
    device = replace(run.device, memory_bytes=run.device.memory_bytes + 2 * state_bytes)
    return replace(run, cluster=replace(run.cluster, device=device))
