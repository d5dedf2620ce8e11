"""Predictions for people: one number first, then its parts; in colour, as plain text, or as HTML for notebooks.

A prediction becomes a list of `Section`s once, and the three ways of showing it share them, so that they cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

from meshcast.base import format_bytes, format_energy, format_flops, format_rate, format_time, format_whole
from meshcast.results.column_room import BAR
from meshcast.results.lowered_by import LOWERING_NOTES
from meshcast.results.sections import Section, capped_lines, columns, print_sections, sections_html, sections_text

if TYPE_CHECKING:
    from meshcast.results.infeasible import Infeasible
    from meshcast.results.prediction import Prediction
    from meshcast.simulate import MemoryUse

COLLECTIVE_ROWS, KERNEL_ROWS = 6, 5
BAR_CELLS = 24
MFU_DEFINITION = "matrix FLOPs of the model, none recomputed or repeated / (step time x dense peak)"
# What a reader must know about a fidelity before believing its number.
FIDELITY_NOTES = {"roofline": "a speed-of-light bound: its interval opens upwards only"}


def percent(share: float) -> str:
    """A share for people: "12.3 %"."""
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def format_power(watts: float) -> str:
    """Watts for people: "612 W", "0.75 W", "56 mW"."""
    if watts >= 10:
        return f"{watts:.0f} W"
    return f"{watts:.3g} W" if watts >= 0.1 else f"{1e3 * watts:.3g} mW"


def print_prediction(prediction: Prediction) -> None:
    """Prints a prediction on standard output."""
    print_sections(prediction_sections(prediction))


def prediction_text(prediction: Prediction) -> str:
    """A prediction as plain text."""
    return sections_text(prediction_sections(prediction))


def prediction_html(prediction: Prediction) -> str:
    """A prediction as HTML that needs nothing else, for notebooks."""
    return sections_html(prediction_sections(prediction))


def prediction_sections(prediction: Prediction) -> list[Section]:
    """The sections of a prediction's text, the most important first."""
    from meshcast.results.changes import lever_sections, what_if_sections
    from meshcast.results.communication import communication_sections  # which is made of sections itself

    if prediction.infeasible is not None:
        return [
            *_infeasible(prediction, prediction.infeasible),
            *_pipeline(prediction),
            *what_if_sections(prediction.what_ifs),
            *_closing(prediction),
        ]
    return [
        _headline(prediction),
        *([Section(rows=prediction.serving.rows())] if prediction.serving is not None else ()),
        *(prediction.loops.sections() if prediction.loops else ()),
        _where_time_goes(prediction),
        Section(rows=_figures(prediction)),
        *_pipeline(prediction),
        *_collectives(prediction),
        *(communication_sections(found, prediction.step_time_s or 0.0) if (found := prediction.communication) else ()),
        *_ranks(prediction),
        *_kernels(prediction),
        *what_if_sections(prediction.what_ifs),
        *lever_sections(prediction),
        *_closing(prediction),
    ]


def _pipeline(prediction: Prediction) -> list[Section]:
    from meshcast.results.pipeline_table import pipeline_sections  # which needs `Section` from here

    return pipeline_sections(prediction.pipeline) if prediction.pipeline is not None else []


def _subject(prediction: Prediction) -> str:
    if prediction.devices == 1:
        return f"{prediction.name} on one {prediction.device}"
    cluster = f" ({prediction.cluster})" if prediction.cluster else ""
    mesh = ", ".join(f"{name}={size}" for name, size in prediction.mesh.items())
    where = f"{prediction.devices} x {prediction.device}{cluster}"
    return f"{prediction.name} on {where}, mesh {mesh}" if mesh else f"{prediction.name} on {where}"


def _headline(prediction: Prediction) -> Section:
    assert prediction.step_time_s is not None
    interval = ""
    if prediction.interval_s is not None:
        low, high = prediction.interval_s
        interval = f"between {format_time(low)} and {format_time(high)}"
    note = FIDELITY_NOTES.get(prediction.fidelity, "")
    basis = prediction.fidelity + LOWERING_NOTES[prediction.lowering]
    return Section(
        title=_subject(prediction),
        rows=[("step time", format_time(prediction.step_time_s), interval, f"({basis})")],
        columns=columns("", "", "", ""),
        note=f"{prediction.fidelity} is {note}" if note else "",
        emphasis=True,
    )


def _where_time_goes(prediction: Prediction) -> Section:
    parts = prediction.breakdown
    assert parts is not None
    total = parts.total or 1.0
    seconds: dict[str, float] = {part.name.replace("_", " "): getattr(parts, part.name) for part in fields(parts)}
    rows = [
        (name, format_time(value), percent(value / total), BAR * round(BAR_CELLS * value / total))
        for name, value in seconds.items()
    ]
    most = max(seconds, key=lambda name: seconds[name])
    return Section(title=f"Where the time goes: mostly {most}", columns=columns("", ">", ">", ""), rows=rows)


def _figures(prediction: Prediction) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = prediction.throughput.rows() if prediction.throughput is not None else []
    if prediction.mfu is not None:
        differs = prediction.hfu is not None and abs(prediction.hfu - prediction.mfu) > 5e-4
        hfu = f", HFU {percent(prediction.hfu or 0.0)} with recomputation" if differs else ""
        rate = prediction.model_flops_per_device_s if prediction.throughput is None else None
        hfu += f"; model {format_rate(rate, 'FLOP/s')} per device" if rate else ""
        rows += [("MFU", percent(prediction.mfu) + hfu), ("", MFU_DEFINITION)]
    moved = f"{format_flops(prediction.flops)} and {format_bytes(prediction.hbm_bytes)} of memory traffic"
    rows.append(("work", f"{moved} in {format_whole(prediction.kernels)} kernels, per device"))
    rows += prediction.compiler.rows() if prediction.compiler is not None else ()
    rows += _memory(prediction.memory, prediction.capacity_bytes)
    rows += _communication(prediction)
    if prediction.energy_j is not None and prediction.step_time_s:
        power = f"{format_power(prediction.energy_j / prediction.step_time_s)} on average"
        figure = f"{format_energy(prediction.energy_j)} per step and device, {power}"
        everyone = f"; {format_energy(prediction.energy_j * prediction.devices)} on all devices"
        rows.append(("energy", figure + everyone if prediction.devices > 1 else figure))
    if prediction.trust is not None:
        rows += prediction.trust.rows()
    return [*rows, *(prediction.inputs.rows() if prediction.inputs is not None else ())]


def _memory(memory: MemoryUse, capacity: int) -> list[tuple[str, str]]:
    if not memory.known:
        return [("memory", f"not known, of {format_bytes(capacity)}")]
    roles = [(role.replace("_", " "), size) for role, size in memory.by_role.items() if size]
    known = any(role != "unknown" for role, _ in roles)
    named = f" ({', '.join(f'{role} {format_bytes(size)}' for role, size in roles)})" if known else ""
    parts = f"arguments {format_bytes(memory.arguments)}{named} + outputs {format_bytes(memory.outputs)} + temporaries "
    parts += f"{format_bytes(memory.temporaries)} - aliased {format_bytes(memory.aliased)}"
    share = percent(memory.peak / capacity) if capacity else "all"
    return [("memory", f"{format_bytes(memory.peak)} at peak, {share} of {format_bytes(capacity)}"), ("", parts)]


def _communication(prediction: Prediction) -> list[tuple[str, str]]:
    busy, parts = prediction.communication_s, prediction.breakdown
    if not busy or parts is None:
        return [("communication", "none")] if prediction.devices > 1 else []
    exposed = parts.exposed_communication
    shares = f"{percent(exposed / busy)} of it, {percent(exposed / (parts.total or 1.0))} of the step"
    sent = f"{format_bytes(prediction.communication_bytes)} sent per device"
    from meshcast.results.communication import schedule_rows

    return [
        ("communication", f"{format_time(busy)}, of which {format_time(exposed)} exposed ({shares}); {sent}"),
        *(schedule_rows(prediction.communication) if prediction.communication is not None else ()),
    ]


def _collectives(prediction: Prediction) -> list[Section]:
    if not prediction.collectives:
        return []
    rows = [
        (
            share.kind.replace("_", "-"),
            share.group,
            f"{share.group_size:,}",
            format_whole(share.count),
            format_bytes(share.bytes_sent),
            format_time(share.seconds),
            share.algorithm,
            share.level,
        )
        for share in prediction.collectives
    ]
    heads = columns("collective", "over", ">group", ">count", ">sent", ">time", "algorithm", "level")
    return [capped_lines(Section(title="Communication", columns=heads, rows=rows), COLLECTIVE_ROWS)]


def _ranks(prediction: Prediction) -> list[Section]:
    if not prediction.ranks:
        return []
    heads = columns("ranks like", ">devices", ">speed", ">busy", ">waiting for slower ones")
    rows = [
        (
            f"device {share.first_device}",
            f"{share.devices:,}",
            f"{share.speed:g}",
            format_time(share.busy_s),
            format_time(share.waiting_s),
        )
        for share in prediction.ranks
    ]
    return [capped_lines(Section(title="Unequal ranks", columns=heads, rows=rows), COLLECTIVE_ROWS)]


def _kernels(prediction: Prediction) -> list[Section]:
    if not prediction.top_kernels:
        return []
    step = prediction.step_time_s or 1.0
    heads = columns("~kernel", ">count", ">time", ">of step", "limited by")
    rows = [
        (
            share.name,
            format_whole(share.count),
            format_time(share.seconds),
            percent(share.seconds / step),
            share.limited_by,
        )
        for share in prediction.top_kernels[:KERNEL_ROWS]
    ]
    return [Section(title="Top kernels", columns=heads, rows=rows)]


def _infeasible(prediction: Prediction, problem: Infeasible) -> list[Section]:
    """Never a time: what is asked for, what there is, what is missing, and how to close the gap."""
    resource = problem.resource.removesuffix("_bytes").replace("_", " ")
    show = format_bytes if problem.resource.endswith("_bytes") else "{:,.4g}".format
    times = f", {problem.demand / problem.bound:.3g} times the capacity" if problem.bound else ""
    rows = [
        (f"{resource} needed", show(problem.demand) + times),
        ("capacity", show(problem.bound)),
        ("missing", show(problem.gap)),
        *_memory(prediction.memory, prediction.capacity_bytes)[1:],
        *(prediction.inputs.rows() if prediction.inputs is not None else ()),
    ]
    return [
        Section(title=f"{_subject(prediction)}: cannot run", rows=rows),
        *([_fixes(problem, show)] if problem.fixes else []),
        Section(title="What would make it fit", columns=columns(""), rows=[(lever,) for lever in problem.levers]),
    ]


def _fixes(problem: Infeasible, show: Callable[[float], str]) -> Section:
    """Changes that were predicted, those that are enough first."""
    rows = [(fix.change, show(fix.demand), "fits" if fix.fits else "not enough", fix.flag) for fix in problem.fixes]
    note = "each change was predicted: give its flag in place of the current one"
    return Section(title="Tried", columns=columns("change", ">needs", "", "flag"), rows=rows, note=note)


def _closing(prediction: Prediction) -> list[Section]:
    warnings = [(warning,) for warning in prediction.warnings]
    origins = {part.name: getattr(prediction.provenance, part.name) for part in fields(prediction.provenance)}
    mix = ", ".join(f"{name} {percent(share)}" for name, share in origins.items() if share)
    source = [f"origin of the time: {mix}"] if prediction.feasible else []
    if prediction.devices > 1:
        source.append(f"network {prediction.network}")
    source.append(f"meshcast {prediction.version} in {format_time(prediction.seconds)}")
    found = [Section(title="Warnings", columns=columns(""), rows=warnings)] if warnings else []
    return [*found, Section(note="; ".join(source))]
