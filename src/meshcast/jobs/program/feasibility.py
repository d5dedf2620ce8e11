"""Infeasible is a result: demand, bound, gap, and the levers that would close it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from meshcast.base import format_bytes
from meshcast.hardware import Device
from meshcast.lower import LoweredProgram, Overflow
from meshcast.results import Infeasible
from meshcast.simulate import MemoryUse, peak_memory

_SHARED_BY = "--plan of a model, shardings of a program's arguments"


def held_memory(lowered: LoweredProgram, device: Device) -> MemoryUse:
    """The bytes that one device must hold; where a compiler found no room, the bytes that it asked for."""
    found, overflow = peak_memory(lowered, device), lowered.overflow
    if overflow is None:
        return found
    held = found.arguments + found.outputs - found.aliased
    return replace(found, peak=max(overflow.demand, held), temporaries=max(0, overflow.demand - held))


# How a program lies on its devices: shared out, whole on each of them, or as it was recorded, which nothing can change.
Spread = Literal["shared", "whole", "recorded"]


def memory_verdict(
    memory: MemoryUse, capacity: int, overflow: Overflow | None = None, *, spread: Spread = "shared"
) -> Infeasible | None:
    """Why a program with this memory cannot run, and what would let it; None where it fits.

    A compiler that found no room (`overflow`) is believed, whatever we make of the program's memory. More devices are offered
    to what is shared out over them: of a program that is whole on each, more of them hold more copies.
    """
    if overflow is not None:
        return _does_not_fit(memory, overflow.demand, overflow.bound, spread)
    return _does_not_fit(memory, memory.peak, capacity, spread) if memory.peak > capacity else None


def _does_not_fit(memory: MemoryUse, demand: int, capacity: int, spread: Spread) -> Infeasible:
    larger = f"use devices with at least {format_bytes(demand)}"
    if spread == "recorded":
        return Infeasible(resource="memory_bytes", demand=demand, bound=capacity, levers=(larger,))
    held = memory.arguments + memory.outputs - memory.aliased
    levers = []
    state = sum(size for role, size in memory.by_role.items() if role in ("parameter", "optimizer_state"))
    if state > memory.peak // 4:
        further = " further" if spread == "shared" else ""
        levers.append(
            f"shard parameters and optimizer state{further}: {format_bytes(state)} of them lie on each device"
        )
    if memory.temporaries > memory.peak // 4:
        levers.append(
            "recompute activations (jax.checkpoint) or use smaller microbatches: "
            f"temporaries take {format_bytes(memory.temporaries)}"
        )
    if memory.outputs > memory.aliased + memory.peak // 10:
        levers.append("donate the arguments that outputs replace (donate_argnums)")
    if memory.by_role.get("cache", 0) > memory.peak // 4:
        levers.append("shorten the context, quantise the cache, or shard it over more devices")
    factor = demand / capacity
    if spread == "shared":
        levers.append(f"use {factor:.1f} times as many devices, or devices with at least {format_bytes(demand)}")
    else:
        levers += [
            f"shard it over {math.ceil(factor)} devices or more ({_SHARED_BY}): each device holds all of it now",
            larger,
        ]
    if held > capacity:
        levers.append("arguments and outputs alone exceed the memory: no change of the schedule can help")
    return Infeasible(resource="memory_bytes", demand=demand, bound=capacity, levers=tuple(levers))
