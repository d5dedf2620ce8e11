"""The catalogue as Markdown tables: `python -m meshcast.hardware.table` prints what docs/hardware.md shows."""

from __future__ import annotations

from collections.abc import Iterable

from meshcast.base import format_bytes, format_rate, markdown_of
from meshcast.hardware.cluster import Cluster
from meshcast.hardware.device import Device
from meshcast.hardware.registry import catalogue


def device_table(devices: Iterable[Device]) -> str:
    """A row a device: peaks, memory, power."""
    return markdown_of(
        ("name", "device", "bf16 or f16", "8 bit", "memory", "bandwidth", "cache", "power", "default cluster"),
        (
            (
                f"`{device.name}`",
                device.title,
                _peak(device, "bf16", "f16"),
                _peak(device, "f8", "i8"),
                format_bytes(device.memory_bytes),
                format_rate(device.memory_bandwidth),
                format_bytes(device.cache_bytes),
                f"{device.tdp_watts:.0f} W",
                f"`{device.default_cluster}`" if device.default_cluster else "none",
            )
            for device in devices
        ),
    )


def cluster_table(clusters: Iterable[Cluster]) -> str:
    """A row a cluster: its device and, from the inside out, what its levels give a device in one direction."""
    return markdown_of(
        ("name", "device", "levels: size, topology, rate per device and direction", "devices at most"),
        (
            (
                f"`{cluster.name}`",
                f"`{cluster.device.name}`",
                "; ".join(
                    f"{level.name}: {level.size}, {level.topology}, {format_rate(level.bandwidth)}"
                    for level in cluster.levels
                ),
                str(cluster.max_devices),
            )
            for cluster in clusters
        ),
    )


def _peak(device: Device, *dtypes: str) -> str:
    present = [dtype for dtype in dtypes if dtype in device.matrix_flops]
    return f"{format_rate(device.matrix_flops[present[0]], 'FLOP/s')} {present[0]}" if present else "none"


def main() -> None:
    """Prints both tables."""
    known = catalogue()
    print(device_table(known.devices), cluster_table(known.clusters), sep="\n\n")


if __name__ == "__main__":
    main()
