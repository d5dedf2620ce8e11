"""Calibrates the GPU parameters: `python -m meshcast.evidence.fits.gpu DIR... --on h200 [--calls F] [--profile F] [--write F]`.

Reads folders of measured programs (laid out as `groundtruth/h200`), fits on one half of its one-op programs (by a hash
of their names), stage by stage, and reports the other half. Each stage moves a few parameters, one at a time by
shrinking factors, to lower the mean `|log(predicted / measured)|` of its groups. Parameters that no stage names keep
the value in `GpuParameters` and are marked as set by hand in the file; energy parameters are fitted to all one-op energy
rows. `--calls` adds fused attention as frameworks call it (`estimate/measurements/calls.py`), `--profile` as XLA does in
the probes of a profile.
"""

from __future__ import annotations

import argparse
import datetime
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from meshcast.base import write_whole
from meshcast.estimate import (
    GPU_SCHEMA,
    Array,
    Clocks,
    GpuAnalytical,
    GpuCalibration,
    GpuParameters,
    PowerDraw,
    idle_watts,
    is_fitted,
    read_calls,
    read_measured_programs,
    read_profile,
    settled_clock,
    shipped_gpu_calibration,
)
from meshcast.evidence.fits.fitting import geomean_error, quantiles, search, to_toml
from meshcast.hardware import Device, resolve
from meshcast.lower import Kernel, KernelKind, lower
from meshcast.partition import partition
from meshcast.programs import CaptureOptions, load
from meshcast.workload import Attention, AttentionLibrary, ReadOptions, read_workload

# (groups, parameters they set), in order: later stages build on earlier ones.
STAGES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("elementwise", "movement"),
        (
            "launch_share", "blocks_per_sm_cycle", "hbm_read", "hbm_write_loss", "cache_share", "cache_full",
            "cache_none", "cache_written", "overlap",
        ),
    ),
    (("transpose",), ("transpose_loss",)),
    (
        ("reduce",),
        ("reduction_cycles", "column_step_cycles"),
    ),
    (("sort",), ("sort_instructions",)),
    (
        ("embedding",),
        (
            "gather_instructions", "atomics_per_sm_cycle", "compare_swap_cost", "hot_line_cycles", "hot_overlap",
            "slice_deviations", "picked_cache", "picked_bandwidth",
        ),
    ),
    (
        ("gemm",),
        (
            "tensor_share", "tile_step_cycles", "load_cycles", "prologue_cycles", "tile_cycles", "gemm_stream", "misaligned",
            "byte_transpose", "burst_power", "power_window_us",
        ),
    ),
    (("conv",), ("conv_share", "conv_few_channels", "depthwise_instructions")),
)  # fmt: skip
GROUPS = frozenset(group for groups, _ in STAGES for group in groups) | {"attention"}
POWER = ("frequency_power", "active_share", "vector_picojoules")
# (what measures them, parameters): fused attention by each library, forward and backward together.
FLASH: tuple[tuple[AttentionLibrary, tuple[str, ...]], ...] = (
    ("cudnn", ("flash_share", "flash_exp", "flash_fill", "flash_tail", "flash_backward_share", "flash_backward_exp")),
    ("flash-2", ("flash2_share", "flash2_backward_share", "flash2_exp")),
)
FITTED = frozenset(name for _, names in STAGES for name in names).union(POWER, *(names for _, names in FLASH))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSample:
    """A measured one-op program: its kernels with their counts, seconds, and joules of a sustained run above idle."""

    id: str
    group: str
    kernels: tuple[Kernel, ...]
    counts: tuple[int, ...]
    measured: float
    joules: float | None
    launched: tuple[Mapping[str, Any], ...]  # what the profiler saw: hlo_op, kernel, us

    @property
    def fitted(self) -> bool:
        """Whether it is in the half that parameters are fitted on."""
        return is_fitted(self.id)


def read_samples(folder: Path, device: Device) -> list[ProgramSample]:
    """One-op programs, lowered."""
    samples = []
    for program in read_measured_programs(folder):
        if program.group not in GROUPS or program.busy_us is None:
            continue
        captured = partition(load(program.path, CaptureOptions(platform="cuda")))
        lowered = lower(read_workload(captured, ReadOptions(skew=program.skew or 0.0)), backend="xla-gpu")
        kernels, counts = zip(*[(k, n) for k, n in lowered.schedule.walk() if k.collective is None], strict=True)
        energy = program.energy
        samples.append(
            ProgramSample(
                id=program.id,
                group=program.group,
                kernels=kernels,
                counts=counts,
                measured=program.busy_us * 1e-6,
                joules=energy.joules - idle_watts(device) * energy.run_us * 1e-6 if energy else None,
                launched=program.launches,
            )
        )
    return samples


def library_attention(samples: Sequence[ProgramSample]) -> list[ProgramSample]:
    """The fused attention calls of those programs that have them, against the kernels their custom calls launched."""
    found = []
    for sample in samples:
        calls = {k["hlo_op"] for k in sample.launched if "cudnn" in k["kernel"]}
        chosen = [(k, n) for k, n in zip(sample.kernels, sample.counts, strict=True) if k.kind is KernelKind.ATTENTION]
        if chosen and calls:
            measured = sum(k["us"] for k in sample.launched if k["hlo_op"] in calls) * 1e-6
            kernels, counts = zip(*chosen, strict=True)
            found.append(replace(sample, kernels=kernels, counts=counts, measured=measured))
    return found


def attention_calls(path: Path) -> list[ProgramSample]:
    """Fused attention as a framework called it, by its short runs."""
    return [
        ProgramSample(
            id=call.id,
            group=call.group,
            kernels=(call.kernel,),
            counts=(1,),
            measured=call.burst,
            joules=None,
            launched=(),
        )
        for call in read_calls(path)
        if call.kernel.kind is KernelKind.ATTENTION
    ]


def attention_probes(path: Path) -> list[ProgramSample]:
    """The fused attention calls of a profile; none of a single query, whose keys are read at a pace no parameter here sets."""
    return [
        ProgramSample(
            id=probe,
            group="attention probes",
            kernels=(kernel,),
            counts=(1,),
            measured=seconds,
            joules=None,
            launched=(),
        )
        for kernel, seconds, probe in read_profile(path).timed_kernels()
        if isinstance(kernel.geometry, Attention) and kernel.geometry.q_len > 1
    ]


def fit_flash(calls: Sequence[ProgramSample], device: Device, start: GpuParameters) -> GpuParameters:
    """Fused attention, library by library; every call counts alike, and no share of peak exceeds one."""
    begun = {name: getattr(GpuParameters(), name) for _, names in FLASH for name in names}
    parameters = replace(start, **begun)
    for library, names in FLASH:
        rows = [
            replace(s, group=library)
            for s in calls
            if s.fitted and all(isinstance(k.geometry, Attention) and k.geometry.library == library for k in s.kernels)
        ]
        if rows:
            parameters = search(parameters, names, lambda p, rows=rows: _share_loss(rows, p, device))  # type: ignore[misc]
    return parameters


def _share_loss(samples: Sequence[ProgramSample], parameters: GpuParameters, device: Device) -> float:
    shares = (parameters.flash_share, parameters.flash_backward_share)
    return loss(samples, parameters, device) if max(shares) <= 1 else math.inf


def residual(sample: ProgramSample, parameters: GpuParameters, device: Device) -> float:
    """`log(predicted / measured)`."""
    draw, counts, share = _settled(sample, parameters, device, "burst")
    return math.log(float(counts @ draw.times(share)) / sample.measured)


def _settled(
    sample: ProgramSample, parameters: GpuParameters, device: Device, clocks: Clocks
) -> tuple[PowerDraw, Array, float]:
    """What a program's kernels draw, how often each runs, and the clock that the cap leaves them."""
    estimator = GpuAnalytical(GpuCalibration(parameters=parameters, intervals={}))
    draw = estimator.estimate(sample.kernels, device).draw
    assert draw is not None
    counts = np.array(sample.counts, dtype=np.float64)
    return draw, counts, settled_clock(draw, counts, device, clocks)


def loss(samples: Sequence[ProgramSample], parameters: GpuParameters, device: Device) -> float:
    """The mean over groups of the mean absolute residual."""
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for sample in samples:
        groups[sample.group].append(min(1.0, abs(residual(sample, parameters, device))))
    return sum(sum(v) / len(v) for v in groups.values()) / len(groups)


def energy_loss(samples: Sequence[ProgramSample], parameters: GpuParameters, device: Device) -> float:
    """The mean absolute residual of energy above idle, of sustained runs."""
    residuals = []
    for sample in samples:
        if sample.joules is None:
            continue
        draw, counts, share = _settled(sample, parameters, device, "sustained")
        predicted = float(counts @ draw.joules(share))
        residuals.append(abs(math.log(predicted / sample.joules)))
    return sum(residuals) / len(residuals) if residuals else 0.0


def fit_stages(
    samples: Sequence[ProgramSample], device: Device, start: GpuParameters, only: Sequence[str]
) -> GpuParameters:
    """The stages of some groups alone; everything else stays as it was."""
    parameters = start
    for groups, names in STAGES:
        rows = [s for s in samples if s.fitted and s.group in groups]
        if rows and not set(groups).isdisjoint(only):
            parameters = search(parameters, names, lambda p, rows=rows: loss(rows, p, device))  # type: ignore[misc]
    return parameters


def fit(
    samples: Sequence[ProgramSample], calls: Sequence[ProgramSample], device: Device, start: GpuParameters
) -> GpuParameters:
    """All stages, twice: what a later one changes may move an earlier optimum."""
    parameters = start
    for _ in range(2):
        parameters = fit_stages(samples, device, parameters, tuple(GROUPS))
        parameters = search(parameters, POWER, lambda p: energy_loss(samples, p, device))
        parameters = fit_flash(calls, device, parameters)
    return parameters


def intervals(
    samples: Sequence[ProgramSample], parameters: GpuParameters, device: Device
) -> dict[str, tuple[float, float]]:
    """The 5 % and 95 % quantiles of measured over predicted, by the kind of each program's longest kernel."""
    kinds: defaultdict[str, list[float]] = defaultdict(list)
    estimator = GpuAnalytical(GpuCalibration(parameters=parameters, intervals={}))
    for sample in samples:
        times = estimator.estimate(sample.kernels, device).time
        kinds[sample.kernels[int(times.argmax())].kind.value].append(math.exp(-residual(sample, parameters, device)))
    return quantiles(kinds)


def report(samples: Sequence[ProgramSample], parameters: GpuParameters, device: Device) -> list[str]:
    """A line per group: the error on the fitted and on the other half."""
    groups: defaultdict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for sample in samples:
        groups[sample.group][0 if sample.fitted else 1].append(residual(sample, parameters, device))
    return [
        f"{group:12}"
        + "".join(f"  {half} {geomean_error(r):6.1%} ({len(r)})" for half, r in (("fitted", f), ("held out", h)) if r)
        for group, (f, h) in groups.items()
    ]


def main() -> None:
    """Fits, reports and, if asked, writes."""
    parser = argparse.ArgumentParser(prog="python -m meshcast.evidence.fits.gpu", description=__doc__)
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+")
    parser.add_argument("--on", default="h200")
    parser.add_argument("--calls", type=Path, help="measured calls of libraries besides")
    parser.add_argument("--profile", type=Path, help="a profile of the device: its fused attention calls")
    parser.add_argument(
        "--write", type=Path, help="where to write the parameters, e.g. src/meshcast/estimate/data/gpu.toml"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=sorted(GROUPS),
        help="fit only this group's stage, from the shipped parameters",
    )
    parser.add_argument("--report", action="store_true", help="only report the shipped parameters")
    given = parser.parse_args()
    device = resolve(given.on).device
    samples = [sample for folder in given.folders for sample in read_samples(folder, device)]
    others = attention_calls(given.calls) if given.calls else []
    others += attention_probes(given.profile) if given.profile else []
    calls = [*library_attention(samples), *others]
    parameters = shipped_gpu_calibration().parameters
    if given.only and not given.report:
        parameters = fit_stages(samples, device, parameters, given.only)
        parameters = fit_flash(calls, device, parameters) if "attention" in given.only else parameters
    elif not given.report:
        parameters = fit(samples, calls, device, GpuParameters())
    lines = report([*samples, *others], parameters, device)
    print("\n".join(lines))
    if given.write:
        head = f"Calibrated on {device.title} by `python -m meshcast.evidence.fits.gpu` on {datetime.date.today()}."
        bounds = intervals([*samples, *others], parameters, device)
        text = to_toml(parameters, bounds, schema=GPU_SCHEMA, provenance="\n".join([head, *lines]), fitted=FITTED)
        write_whole(given.write, text)


if __name__ == "__main__":
    main()
