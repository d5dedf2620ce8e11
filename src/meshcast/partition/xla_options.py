"""How every compiler here is asked for a program: once for all devices, partitioned by XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib import xla_client


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
