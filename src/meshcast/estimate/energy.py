"""Energy above idle: joules per FLOP and per byte, measured where the catalogue has it, else from the power budget."""

from __future__ import annotations

from meshcast.hardware import Device

# Share of (TDP - idle) that the matrix engine at its peak, or the memory at its bandwidth, draws: from the H200, where
# 0.786 pJ/FLOP * 989 TFLOP/s = 778 W (the cap lowers the clock) and 119 pJ/byte * 4.8 TB/s = 571 W, of 584 W.
COMPUTE_SHARE = 1.0
MEMORY_SHARE = 0.9
# Idle power where it was not measured: the H200's 116 of 700 W.
IDLE_SHARE = 0.166


def idle_watts(device: Device) -> float:
    """Power of a device that is on and does nothing."""
    return device.idle_watts if device.idle_watts is not None else IDLE_SHARE * device.tdp_watts


def joules_per_flop(device: Device, key: str, peak: float) -> float:
    """Energy of one matrix FLOP at rate `peak`; slower types cost more by the ratio of their rates."""
    if device.energy is not None and key in device.energy.matrix:
        return device.energy.matrix[key]
    return COMPUTE_SHARE * (device.tdp_watts - idle_watts(device)) / peak


def joules_per_byte(device: Device) -> float:
    """Energy of one byte to or from memory."""
    if device.energy is not None and device.energy.memory_per_byte is not None:
        return device.energy.memory_per_byte
    return MEMORY_SHARE * (device.tdp_watts - idle_watts(device)) / device.memory_bandwidth
