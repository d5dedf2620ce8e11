"""Whole low-bit networks: fewer bits of weights or of activations are never slower nor larger, on any kind of device."""

from __future__ import annotations

import functools

import pytest

import meshcast as mc

BITS = (2, 4, 8)
DEVICES = ("h200", "a100", "b200", "v100-sxm2-32gb", "tpu-v4", "tpu-v6e", "edge-tpu", "aimc-28nm")
ROUNDING = 1e-5  # norms of what overlaps
# What a sum takes to unpack a residual that it reads in 2 bits, of a step on GPUs, whose cores have no such numbers: 0.04 us of
# 163 on an H200, though it reads fewer bytes.
UNPACKING = dict.fromkeys(("h200", "a100", "b200"), 5e-4)


@functools.cache
def network(name: str, batch: int, weights: int, activations: int) -> mc.Program:
    settings = {"batch": str(batch), "weight_bits": str(weights), "activation_bits": str(activations)}
    return mc.load(name, settings=settings)


def busy_and_peak(program: mc.Program, device: str, fidelity: str) -> tuple[float, float, int]:
    """Seconds of a step, those that the device works for (a host that launches slowly hides them), and bytes."""
    found = mc.predict(program, on=device, fidelity=fidelity)
    assert found.step_time_s is not None
    parts = found.breakdown
    assert parts is not None
    return found.step_time_s, parts.compute + parts.memory + parts.overhead, found.memory.peak


def hold(name: str, batch: int, device: str, fidelity: str, widths: list[tuple[int, int]]) -> None:
    found = {each: busy_and_peak(network(name, batch, *each), device, fidelity) for each in widths}
    near = 1 + (UNPACKING.get(device, ROUNDING) if fidelity != "roofline" else ROUNDING)
    for few, (step, busy, peak) in found.items():
        for many, (other_step, other_busy, other_peak) in found.items():
            if few[0] <= many[0] and few[1] <= many[1]:
                where = (name, batch, device, fidelity, few, many)
                assert step <= other_step * near, where
                assert busy <= other_busy * near, where
                assert peak <= other_peak, where


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "batch"), [("fqconv-resnet20-forward", 64), ("fqconv-kws-forward", 16)])
def test_fewer_bits_of_either_are_never_slower_nor_larger(name: str, batch: int, device: str) -> None:
    hold(name, batch, device, "analytical", [(w, a) for w in BITS for a in BITS])


@pytest.mark.parametrize(
    ("device", "fidelity"),
    [
        ("h200", "simulated"),
        ("a100", "simulated"),
        ("v100-sxm2-32gb", "simulated"),
        ("tpu-v6e", "simulated"),
        ("h200", "roofline"),
        ("edge-tpu", "roofline"),
    ],
)
@pytest.mark.parametrize(("name", "batch"), [("fqconv-resnet32-forward", 1), ("fqconv-kws-forward", 512)])
def test_fewer_bits_of_both_are_never_slower_in_any_fidelity(name: str, batch: int, device: str, fidelity: str) -> None:
    hold(name, batch, device, fidelity, [(bits, bits) for bits in BITS])


def test_launches_do_not_depend_on_bits() -> None:
    # Decided on packed bytes, a residual of 2 bits would be written down once more (74 launches for 72).
    launches = {
        mc.predict(network("fqconv-resnet20-forward", 64, w, a), on="h200", fidelity="analytical").kernels
        for w in BITS
        for a in BITS
    }
    assert len(launches) == 1
