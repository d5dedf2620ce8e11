"""A GPU of the catalogue as XLA's compiler wants it: `GpuTargetConfigProto` in proto text.

XLA needs no device to compile for one, only a description: how many cores, what a core holds, how fast memory is. What a
data sheet says comes from the device's file, what every CUDA GPU shares from the CUDA C++ Programming Guide; the fields
are those of XLA's own descriptions (openxla/xla, xla/backends/gpu/target_config/specs).
"""

from __future__ import annotations

import math
import re

from meshcast.base import UnsupportedError
from meshcast.hardware import Core, Device

# The same for every compute capability.
WARP = 32
BLOCK_THREADS = 1024
STATIC_SHARED_MEMORY = 49152  # of a block that does not opt in to more
GRID = (2**31 - 1, 65535, 65535)
BLOCK = (1024, 1024, 64)
# The software that a current installation has: XLA asks which cuDNN and CUDA features it may use.
DRIVER, TOOLKIT, CUDNN = "13.0.0", "12.9.0", (9, 10, 0)


def missing_facts(device: Device) -> str | None:
    """Why the compiler cannot target a device; None when it can."""
    if device.kind != "gpu" or device.vendor.lower() != "nvidia":
        return f"XLA's CUDA compiler does not compile for {device.name} ({device.vendor} {device.kind})"
    if device.core is None:
        return (
            f"the file of {device.name} has no [core] table: compute_capability, threads, registers, shared_memory, "
            "block_shared_memory"
        )
    return None


def target_config(device: Device) -> str:
    """The compiler's description of a device.

    Raises:
        UnsupportedError: The device is no CUDA GPU, or its file lacks what the compiler must know.
    """
    why = missing_facts(device)
    if why is not None:
        raise UnsupportedError(
            why, where=device.name, fix="use --lowering modelled, or give the facts in a file with base = ..."
        )
    core = device.core
    assert core is not None
    info = [
        f"threads_per_block_limit: {BLOCK_THREADS}",
        f"threads_per_warp: {WARP}",
        f"shared_memory_per_block: {STATIC_SHARED_MEMORY}",
        f"shared_memory_per_core: {core.shared_memory_bytes}",
        f"shared_memory_per_block_optin: {core.block_shared_memory_bytes}",
        f"threads_per_core_limit: {core.threads}",
        f"registers_per_core_limit: {core.registers}",
        f"registers_per_block_limit: {core.registers}",
        f"core_count: {device.cores}",
        f"fpus_per_core: {lanes_per_core(device)}",
        *(f"block_dim_limit_{axis}: {size}" for axis, size in zip("xyz", GRID, strict=True)),
        *(f"thread_dim_limit_{axis}: {size}" for axis, size in zip("xyz", BLOCK, strict=True)),
        f"memory_bandwidth: {device.memory_bandwidth:.0f}",
        f"l2_cache_size: {device.cache_bytes:.0f}",
        f"clock_rate_ghz: {device.clock_hz / 1e9:g}",
        f"device_memory_size: {device.memory_bytes:.0f}",
        f"cuda_compute_capability {{ {_capability(core)} }}",
        f'driver_version: "{DRIVER}"',
        f'runtime_version: "{TOOLKIT}"',
        f'compile_time_toolkit_version: "{TOOLKIT}"',
        f'dnn_version: "{".".join(map(str, CUDNN))}"',
    ]
    body = "".join(f"  {line}\n" for line in info)
    dnn = "major: {} minor: {} patch: {}".format(*CUDNN)
    return (
        f"gpu_device_info {{\n{body}}}\n"
        f'platform_name: "CUDA"\ndnn_version_info {{ {dnn} }}\ndevice_description_str: "{device.title}"\n'
    )


def lanes_per_core(device: Device) -> int:
    """f32 multiply-adds of a core per clock: `peak / (2 cores clock)`, to the nearest power of two.

    Every CUDA core count so far is one; vendors quote the peak at a clock that differs by some percent.
    """
    return int(2 ** round(math.log2(device.vector_flops["f32"] / (2 * device.cores * device.clock_hz))))


def _capability(core: Core) -> str:
    found = re.fullmatch(r"(\d+)\.(\d+)([a-z]?)", core.compute_capability)
    assert found is not None, "the catalogue's reader has checked it"
    extension = "ACCELERATED_FEATURES" if found[3] else "NONE"
    return f"major: {found[1]} minor: {found[2]} feature_extension: {extension}"
