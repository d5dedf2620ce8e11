"""The roofline: FLOP/s that kernels reach over FLOPs per byte, below the roofs of the device (Williams 2009).

    roof(I) = min(peak of the type, bandwidth of the memory level * I),   I = FLOPs / bytes to and from memory

A kernel's bytes are those that it must move at least once. Where they come from the cache, it can lie above the memory's roof,
and lies below the cache's.
"""

from __future__ import annotations

from typing import TypedDict

from meshcast.estimate import matrix_rate
from meshcast.hardware import Device
from meshcast.report.subject import Scene, Subject
from meshcast.report.tally import Sums, tallied
from meshcast.report.work import Launches
from meshcast.results import percent

MOST_POINTS = 400
LEAST_SHARE = 1e-5  # of the step, that a group of kernels needs to be on the plot
LEAST_INTENSITY = 1e-3  # FLOPs a byte: what has less moves data


class Roof(TypedDict):
    """A roof: FLOP/s of a type, or bytes/s of a level of memory."""

    name: str
    kind: str  # "compute" or "memory"
    value: float


class RooflinePoint(TypedDict):
    """Kernels of one kind and shape."""

    name: str
    source: str
    kind: str
    type: str
    intensity: float
    achieved: float
    share: float
    seconds: float
    count: float
    sol: float
    bound: str


class SceneRoofline(TypedDict):
    """The points of one step, and what is not among them."""

    name: str
    points: list[RooflinePoint]
    note: str


class RooflineSection(TypedDict):
    """The section."""

    device: str
    roofs: list[Roof]
    scenes: list[SceneRoofline]


def roofline(subject: Subject) -> RooflineSection | None:
    """The section; None where nothing runs that could be drawn."""
    scenes = [_scene(scene) for scene in subject.scenes]
    if not any(scene["points"] for scene in scenes):
        return None
    device = subject.cluster.device
    types = {point["type"] for scene in scenes for point in scene["points"]}
    roofs: list[Roof] = [
        {"name": name, "kind": "compute", "value": value} for name, value in _peaks(device).items() if name in types
    ]
    roofs.append({"name": "memory", "kind": "memory", "value": device.memory_bandwidth})
    if device.cache_bandwidth:
        roofs.append({"name": "cache", "kind": "memory", "value": device.cache_bandwidth})
    return {"device": device.name, "roofs": roofs, "scenes": scenes}


def _peaks(device: Device) -> dict[str, float]:
    """Peaks by the name that a roof has: types of the matrix engine, and of the vector units."""
    vector = {f"{name} vector": value for name, value in device.vector_flops.items()}
    return {**device.matrix_flops, **vector}


def _scene(scene: Scene) -> SceneRoofline:
    points: list[RooflinePoint] = []
    step = scene.folded.step_s
    nothing = 0.0

    def key(each: Launches) -> object:
        return (each.kernel.cost_key, each.kernel.location) if each.kernel.collective is None else None

    for what, found in tallied(scene, key):
        if what is None or found.first is None or not found.seconds:
            continue
        if not found.bytes or found.flops < LEAST_INTENSITY * found.bytes:
            nothing += found.seconds
            continue
        points.append(_point(scene, found, found.first, step))
    kept = [point for point in points[:MOST_POINTS] if point["share"] >= LEAST_SHARE]
    left = points[len(kept) :]
    notes = []
    if nothing:
        notes.append(
            f"kernels without arithmetic to speak of take {percent(nothing / step)} of the step and are not on the plot"
        )
    if left:
        share = sum(point["share"] for point in left)
        notes.append(f"{len(left):,} smaller groups of kernels, {percent(share)} of the step, are left out")
    return {"name": scene.name, "points": kept, "note": "; ".join(notes)}


def _point(scene: Scene, found: Sums, each: Launches, step: float) -> RooflinePoint:
    device, kernel = each.run.device, each.kernel
    if kernel.matrix_flops:
        rate = matrix_rate(kernel, device)
        kind, peak = rate.type, rate.flops
    else:
        known = device.vector_flops
        dtype = kernel.dtype if kernel.dtype in known else next(iter(known), "f32")
        kind, peak = f"{dtype} vector", known.get(dtype, 0.0)
    achieved = found.flops / found.seconds
    moved = found.bytes / found.seconds
    return {
        "name": each.name, "source": scene.line(kernel.location), "kind": each.kind, "type": kind,
        "intensity": found.flops / found.bytes, "achieved": achieved, "share": found.seconds / step if step else 0.0,
        "seconds": found.seconds, "count": found.count,
        "sol": max(achieved / peak if peak else 0.0, moved / device.memory_bandwidth),
        "bound": each.run.kernels[kernel].limited_by,
    }  # fmt: skip
