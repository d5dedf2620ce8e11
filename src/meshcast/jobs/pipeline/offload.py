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

from meshcast.hardware import Device, host_rate
from meshcast.jobs.program.run import Run

PIECES_HELD = 2


def streaming_seconds(state_bytes: int, pieces: int, update_s: float, device: Device) -> float:
    """Seconds that an update takes longer because its state comes from the host.

    Raises:
        UnsupportedError: Nothing is known of the device's link to its host.
    """
    if not state_bytes:
        return 0.0
    stream = state_bytes / host_rate(device)
    return max(update_s, stream) + stream / pieces - update_s


def with_room(run: Run, state_bytes: int) -> Run:
    """The update on a device that has the state's memory too: all of it at once is where it is timed, not where it is."""
    device = replace(run.device, memory_bytes=run.device.memory_bytes + 2 * state_bytes)
    return replace(run, cluster=replace(run.cluster, device=device))
