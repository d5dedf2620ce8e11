"""The child process that compiles a program for virtual CPU devices, only for XLA to dump it once partitioned.

Usage: `python -m meshcast.partition._xla_spmd_child PROGRAM DEVICES`, where PROGRAM is a file with StableHLO in MLIR
text or bytecode. The dump is asked for through `XLA_FLAGS`, which the parent sets; nothing comes out on stdout. The
parent may kill this process as soon as the dump is there: what XLA does after partitioning is of no interest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib import _jax, xla_client


def compile_options(devices: int, ids: Sequence[int] | None = None) -> Any:
    """One program over all devices, Shardy first, as `jax.jit` asks for; unsharded arguments and results are free.

    Devices are numbered from 0 unless their ids are given.
    """
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    assignment = xla_client.DeviceAssignment.create(np.reshape(range(devices) if ids is None else ids, (1, devices)))
    options.num_replicas = build.num_replicas = 1
    options.num_partitions = build.num_partitions = devices
    options.device_assignment = build.device_assignment = assignment
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = True
    build.allow_spmd_sharding_propagation_to_parameters = [True]
    build.allow_spmd_sharding_propagation_to_output = [True]
    return options


def main(arguments: list[str]) -> None:
    """Compiles the program in `arguments[0]` for `arguments[1]` devices."""
    program, devices = Path(arguments[0]).read_bytes(), int(arguments[1])
    client: Any = xla_client.make_cpu_client()
    client.compile_and_load(program, _jax.DeviceList(tuple(client.devices())), compile_options(devices))


if __name__ == "__main__":
    main(sys.argv[1:])
