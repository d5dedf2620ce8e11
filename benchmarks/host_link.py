"""Measures what copies between pinned host memory and JAX's device reach, each way alone and both at once.

    python benchmarks/host_link.py > link.jsonl

Every row is one size of piece: bytes/s in each direction. Over the link's nominal rate, `both_bytes_per_s` is the share that
`meshcast/jobs/pipeline/offload.py` counts with (`LINK_SHARE`): state comes in and goes out at the same time there.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

MEBIBYTE = 2**20
PIECES = tuple(MEBIBYTE * 2**power for power in range(4, 11))  # 16 MiB to 1 GiB
MOVED = 4 * 1024 * MEBIBYTE  # each way in one timing, whatever the piece
TIMINGS = 5


def seconds(copies: Callable[[], list[Any]]) -> float:
    """Median time of some copies that are all asked for before the first is waited for."""
    jax.block_until_ready(copies())
    times = []
    for _ in range(TIMINGS):
        start = time.perf_counter()
        jax.block_until_ready(copies())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def row(piece: int) -> dict[str, Any]:
    """What pieces of that many bytes reach."""
    device = jax.devices()[0]
    here, there = (jax.sharding.SingleDeviceSharding(device, memory_kind=kind) for kind in ("device", "pinned_host"))
    on_device = jax.device_put(jnp.zeros(piece, jnp.uint8), here)
    on_host = jax.device_put(on_device, there)
    count = max(1, MOVED // piece)

    def inward() -> list[Any]:
        return [jax.device_put(on_host, here) for _ in range(count)]

    def outward() -> list[Any]:
        return [jax.device_put(on_device, there) for _ in range(count)]

    def both() -> list[Any]:
        return [
            copy for _ in range(count) for copy in (jax.device_put(on_host, here), jax.device_put(on_device, there))
        ]

    ways = {"in": inward, "out": outward, "both": both}
    rates = {f"{name}_bytes_per_s": round(count * piece / seconds(copies)) for name, copies in ways.items()}
    return {"device": device.device_kind, "piece_bytes": piece, "copies": count, **rates}


def main() -> None:
    """One line of JSON for each size of piece."""
    for piece in PIECES:
        print(json.dumps(row(piece)), flush=True)


if __name__ == "__main__":
    main()
