"""The link between a device and its host's memory: what copies over it reach."""

from __future__ import annotations

from meshcast.base import UnsupportedError
from meshcast.hardware.device import Device

# Of a link's nominal rate, what copies between pinned memory and the device reach in both directions at once: 50.3 of
# 63 GB/s on an H200 behind 16 lanes of PCIe 5.0, in pieces of 16 MiB to 1 GiB (55 GB/s in one direction alone);
# `benchmarks/host_link.py` measures it again.
LINK_SHARE = 0.8
FROM_HOST, TO_HOST = "from host", "to host"  # what copies over it are called


def host_rate(device: Device) -> float:
    """Bytes/s that copies to, or from, the host's memory reach, in each direction at once.

    Raises:
        UnsupportedError: The catalogue does not have the link.
    """
    if device.host_bandwidth is None:
        raise UnsupportedError(
            f"offload moves data over the link to the host, and no rate of it is known for {device.name}",
            where="offload of --plan or --overlap",
            fix='give [host] bandwidth = "..." in a device file with base = ' + f'"{device.name}"',
        )
    return LINK_SHARE * device.host_bandwidth
