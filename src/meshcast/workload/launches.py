"""What the notes that `programs.hlo_text` leaves on a compiled program's ops mean: launches, copies, cycles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from meshcast.workload.graph import Cost, OpKind
from meshcast.workload.made_launches import CodeShape, CompiledLaunch, FrameworkStep
from meshcast.workload.rule import OpReading
from meshcast.workload.rules.attributes import text
from meshcast.workload.rules.backend_config import parse_object

NO_ESTIMATE = 2**62
MARK = 2**60


def launch_of(operation: Any) -> CompiledLaunch | None:
    """The launch that an op of a scheduled module is; None for what launches nothing: views, constants, loops."""
    name = text(operation, "meshcast.name")
    if not name:
        return None
    config = parse_object(text(operation, "meshcast.backend_config") or "{}")
    emitter = config.get("fusion_backend_config", {})
    communication = config.get("collective_backend_config", {})
    moment = text(operation, "meshcast.async")
    started = moment in ("start", "prefetch") and not communication.get("is_sync")
    aside = text(operation, "meshcast.on_chip")
    sides, warps = _tile(emitter)
    return CompiledLaunch(
        name=name,
        fusion=text(operation, "meshcast.fusion"),
        emitter=str(emitter.get("kind", "")),
        tile=math.prod(1 << (side - 1).bit_length() for side in sides) if sides else 0,
        warps=warps,
        sides=sides,
        blocking=not started,
        prefetched=moment == "prefetch",
        on_chip=frozenset(map(int, aside.split(","))) if aside else frozenset(),
        cycles=_cycles(config),
        code=_code(config.get("own_code")),
    )


def _tile(emitter: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    """(sides of its tile, warps) of a program of Triton's; nothing where none is told."""
    chosen = emitter.get("block_level_fusion_config") if isinstance(emitter, dict) else None
    tiles = chosen.get("output_tiles") if isinstance(chosen, dict) else None
    if not isinstance(chosen, dict) or not isinstance(tiles, list) or not tiles or not isinstance(tiles[0], dict):
        return (), 0
    try:
        sizes = [int(size) for size in tiles[0].get("sizes", ())]
        warps = int(chosen.get("num_warps", 0))
    except (TypeError, ValueError):
        return (), 0
    return (tuple(sizes), warps) if sizes and min(sizes) >= 1 and warps >= 1 else ((), 0)


def _code(said: Any) -> CodeShape | None:
    if not isinstance(said, dict):
        return None
    return CodeShape(
        share=float(said.get("share", 1.0)),
        extra=float(said.get("extra_us", 0.0)) * 1e-6,
        block_cycles=float(said.get("block_cycles", 0.0)),
        wait_cycles=float(said.get("wait_cycles", 0.0)),
    )


def framework_step(module: Any) -> FrameworkStep | None:
    """What a framework that ran op by op says of the whole step beside its launches; None where it says nothing."""
    said = text(module.operation, "meshcast.told")
    if not said:
        return None
    told = parse_object(said)
    memory, host = told.get("memory", {}), told.get("host", [])
    return FrameworkStep(
        arguments=int(memory.get("arguments", 0)),
        temporaries=int(memory.get("temporaries", 0)),
        host=tuple(tuple(map(int, counts)) for counts in host),
    )


def _cycles(config: Mapping[str, Any]) -> float | None:
    """The TPU compiler's estimate; the largest integer stands for none, and some estimates have 2**60 added to them."""
    window = config.get("window_config", {})
    said = str(window.get("estimated_cycles", 0)) if isinstance(window, dict) else ""
    cycles = int(said) if said.isdecimal() else 0
    if not cycles or cycles >= NO_ESTIMATE:
        return None
    return float(cycles % MARK)


def copy_cost(reading: OpReading) -> Cost:
    """A copy that XLA scheduled: every byte read and written, in another order where its layouts differ."""
    moved = reading.operands[0].bytes
    before, _, after = text(reading.op, "meshcast.layouts").partition("->")
    kind = OpKind.MOVE if before == after else OpKind.TRANSPOSE
    return Cost(kind=kind, dtype=reading.operands[0].dtype, operand_bytes=(moved,), written_bytes=moved)
