"""Which estimators answer, the chain that a fidelity stands for on a device; and whose kernels they are asked about."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from meshcast.base import UsageError, nearest, with_article
from meshcast.estimate import (
    MODELLED_KINDS,
    Estimator,
    Profiled,
    carried_kernels,
    carried_note,
    estimator_names,
    given_kernels,
    load_estimator,
    load_simulator,
    measured_kernels,
    shipped_devices,
    takes_lines,
    why_not_measured,
)
from meshcast.hardware import WHAT_IF_MARK, Device
from meshcast.lower import Lowering, choose_lowering
from meshcast.options.estimate_options import EstimateOptions
from meshcast.options.options import Options
from meshcast.programs import Program, own_launches

# `auto`: the best first. Later fidelities enter here.
AUTO_ORDER = ("profiled", "analytical", "roofline")
# What answers where a fidelity has nothing: kernels that were not measured are modelled, and the provenance says so.
# `compiled` is about the kernels: what the compiler does not time is timed by the best estimator there is.
FALLBACKS = {
    "profiled": ("analytical", "roofline"),
    "simulated": ("analytical", "roofline"),
    "compiled": AUTO_ORDER,
}


def fidelity_names() -> tuple[str, ...]:
    """Every fidelity that can be asked for by its own name."""
    return tuple(estimator_names())


def common_fidelity(devices: Sequence[Device]) -> str:
    """The best fidelity of `auto` that all of some devices have: kernels measured on every one of them, or a model of all."""
    if all(measured_kernels(device) is not None for device in devices):
        return "profiled"
    return "analytical" if all(device.kind in MODELLED_KINDS for device in devices) else "roofline"


def check_fidelity(name: str) -> None:
    """Refuses a fidelity that no estimator has.

    Raises:
        UsageError: There is none of this name.
    """
    known = ("auto", *fidelity_names())
    if name not in known:
        raise UsageError(f"no fidelity {name!r}", where="--fidelity", fix=nearest(name, known))


def _chain(fidelity: str) -> tuple[str, ...]:
    """Names of the estimators that a fidelity stands for, the first that is asked first."""
    return AUTO_ORDER if fidelity == "auto" else (fidelity, *FALLBACKS.get(fidelity, ()))


def why_not_taken(estimate: EstimateOptions, fidelity: str) -> UsageError | None:
    """Why a fidelity has no use for the profile or the simulator that is given; None where it takes what there is."""
    if estimate.simulator is not None and fidelity != "simulated":
        return UsageError(
            f"fidelity {fidelity!r} does not simulate", where="--simulator", fix="use --fidelity simulated"
        )
    if estimate.profile is not None and str(estimate.profile).endswith(".systolic.toml") and fidelity != "simulated":
        return UsageError(
            f"{estimate.profile} has lines of a simulator, which fidelity {fidelity!r} does not read",
            where="--profile",
            fix="use --fidelity simulated --simulator scalesim-tpu with it",
        )
    fitted = fidelity == "simulated" and takes_lines(estimate.simulator)
    if estimate.profile is not None and "profiled" not in _chain(fidelity) and not fitted:
        return UsageError(
            f"fidelity {fidelity!r} does not look at measured kernels",
            where="--profile",
            fix="use --fidelity profiled or auto",
        )
    return None


def chosen_lowering(options: Options, program: Program, device: Device) -> Lowering:
    """Whose kernels a program has on a device: ours, the compiler's, or those that it came with.

    Raises:
        UsageError: Kernels of a compiler are asked for, and others or rewrites of theirs besides; or no such lowering.
        UnsupportedError: The compiler is asked for and cannot be had.
    """
    if own_launches(program):
        return "given"  # the framework's own: what its stack says of kernels is in them, and nothing is sent
    overlap, others = options.lowering.rewrites, options.lowering.other_kernels
    # Counts that are told name the program's own loops, not those that XLA leaves of them.
    # The TPU compiler takes minutes for a large model: it runs when it is asked for.
    # Rewrites are ours to make: a compiler's schedule has its own.
    preferred = (
        options.estimate.fidelity == "auto"
        and not options.program.trip_counts
        and device.kind != "tpu"
        and not overlap.any
        and not others
    )  # fmt: skip
    lowering = choose_lowering(options.asked_lowering, program, device, prefer_compiled=preferred)
    if overlap.any and lowering != "modelled":
        raise UsageError(
            f"the kernels are {lowering}: a compiler has decided what overlaps",
            where="--overlap",
            fix="leave --overlap out, or use --lowering modelled with it",
        )
    refused = [name for name in others if lowering != "modelled" or (name == "fusion" and device.kind != "gpu")]
    if refused:
        said = ", ".join(f"{name}={others[name]}" for name in refused)
        raise UsageError(
            f"the kernels are {lowering} for {with_article(device.kind)}: what another framework launches ({said}) is not "
            "among them",
            where="--stack",
            fix="use a stack whose kernels are XLA's, such as xla, or --lowering modelled on a GPU",
        )
    return lowering


def left_to_compiler(options: Options) -> Options:
    """The options without the rewrites that a stack brings, where a compiler's kernels are asked for: it makes its own.

    Rewrites that the user asks for stay, and those of a plan (what layers save may wait in the host's memory): they are
    refused with such kernels (`chosen_lowering`).
    """
    stacks = options.brought is not None and "overlap" in options.brought.fields and "overlap" not in options.written
    if not stacks or options.lowering.rewrites.offload or options.asked_lowering != "compiled":
        return options
    return options.having(overlap="")


@functools.cache  # one estimator a device: what it has answered is kept
def _carried(device: Device) -> Profiled | None:
    """Kernels of other devices beside what was measured on one; None where there are none, or all sorts were measured on it."""
    if device.name in shipped_devices() or WHAT_IF_MARK in device.name or not carried_kernels(device):
        return None
    return Profiled(measured_kernels, carried_kernels)


def chosen_estimators(options: Options, device: Device) -> tuple[tuple[Estimator, ...], tuple[str, ...]]:
    """The chain that a fidelity stands for on a device, and what the prediction should say about it.

    Raises:
        UsageError: There is no such fidelity, or the profile is not one for it or for the device.
        UnsupportedError: Measured kernels are asked for, and there are none of the device.
    """
    fidelity = options.estimate.fidelity
    check_fidelity(fidelity)
    if fidelity == "compiled" and options.lowering.kernels == "modelled":
        raise UsageError(
            "fidelity 'compiled' is the compiler's own kernels, not modelled ones",
            where="--lowering",
            fix="leave --lowering out, or use --fidelity auto --lowering modelled",
        )
    if (refused := why_not_taken(options.estimate, fidelity)) is not None:
        raise refused
    names = _chain(fidelity)
    if fidelity == "simulated":
        lines = None if options.estimate.profile is None else Path(options.estimate.profile)
        simulated = load_simulator(options.estimate.simulator, device, lines)
        return (simulated, *(load_estimator(name) for name in names[1:])), ()
    if options.estimate.profile is None:
        if fidelity == "profiled" and (carried := _carried(device)) is not None:
            return (carried, *(load_estimator(name) for name in names[1:])), (
                carried_note(device, measured_kernels(device)),
            )
        if fidelity == "profiled" and measured_kernels(device) is None:
            raise why_not_measured(device)
        return tuple(load_estimator(name) for name in names), ()
    given = given_kernels(Path(options.estimate.profile), device)
    chosen = Profiled(lambda asked: given.interpolator if asked.name == device.name else None)
    return tuple(chosen if name == "profiled" else load_estimator(name) for name in names), given.notes
