"""`python -m meshcast.evidence.calibrate.collect OUT.npz --on DEVICE`: joins measurements into one file of measured kernels.

The file is what fidelity `profiled` interpolates in: `meshcast predict ... --profile OUT.npz`. Profiles
(`--profile FILE`) are taken as a whole; of folders of measured programs (`--measured DIR`) `--split` can take one half,
by a hash of their names, so that the other half can judge the result.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from meshcast.base import InputError, MeshcastError, UsageError
from meshcast.estimate import (
    SPLITS,
    Interpolator,
    InterpolatorRow,
    Split,
    build_interpolator,
    given_kernels,
    read_profile,
)
from meshcast.evidence.calibrate.measured import collect_folder
from meshcast.evidence.calibrate.solver_calls import solver_rows
from meshcast.hardware import Device, resolve


def collect(
    device: Device,
    profiles: Iterable[Path],
    folders: Iterable[Path],
    split: Split = "all",
    *,
    solvers: Iterable[Path] = (),
    earlier: Interpolator | None = None,
) -> Interpolator:
    """Measured kernels of a device from all that was measured on it; says on stderr what each source gave.

    Args:
        device: What everything was measured on.
        profiles: Files of `meshcast calibrate --profile`.
        folders: Folders of measured programs.
        split: Which half of the folders' programs; profiles are not split.
        solvers: Tables of dense solvers' calls.
        earlier: Measured kernels whose families' lengths and noises stay; without them all are searched over folds.

    Raises:
        InputError: Something cannot be read, or nothing in it has a time.
        UsageError: A profile is another device's.
    """
    rows: list[InterpolatorRow] = []
    sources: list[str] = []
    for path in profiles:
        found = _profile_rows(path, device)
        _say(f"{path}: {len(found)} kernels of {len({row.program for row in found})} probes")
        rows += found
        sources.append(path.name)
    for folder in folders:
        programs = list(collect_folder(folder, device, split))
        kernels = [row for program in programs for row in program.rows]
        _say(f"{folder}: {len(kernels)} kernels of {sum(bool(p.rows) for p in programs)} of {len(programs)} programs")
        for why, count in Counter(program.why for program in programs if program.why).most_common():
            _say(f"  {count} without: {why}")
        rows += kernels
        sources.append(f"{folder.resolve().name} ({split})")
    for path in solvers:
        calls = _solver_calls(path, device)
        _say(f"{path}: {len(calls)} calls")
        rows += calls
        sources.append(path.name)
    if not rows:
        raise InputError("nothing that was given has kernels with times", fix="give --profile FILE or --measured DIR")
    return build_interpolator(rows, device, sources, earlier)


def _profile_rows(path: Path, device: Device) -> list[InterpolatorRow]:
    profile = read_profile(path)
    if profile.header.device != device.name:
        raise UsageError(
            f"the profile was measured on {profile.header.device}, not on {device.name}",
            where=str(path),
            fix=f"--on {profile.header.device}, or the file of that device",
        )
    try:
        return [
            InterpolatorRow(kernel=kernel, seconds=seconds, program=probe)
            for kernel, seconds, probe in profile.timed_kernels()
        ]
    except InputError as error:
        raise InputError(error.message, where=error.where or str(path), fix=error.fix) from error


def _solver_calls(path: Path, device: Device) -> list[InterpolatorRow]:
    try:
        return list(solver_rows(path.read_text().splitlines(), device))
    except (OSError, KeyError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
        fix = "a CSV file with the columns op, dtype, batch, m, n, k and busy_us"
        raise InputError(f"no table of solvers' calls: {said}", where=str(path), fix=fix) from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Collects, prints the rows of each family and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m meshcast.evidence.calibrate.collect", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.npz")
    parser.add_argument("--on", required=True, help="the device, a name of the catalogue or its TOML file")
    parser.add_argument("--profile", type=Path, nargs="+", default=[], metavar="FILE", help="NAME.profile.jsonl.gz")
    parser.add_argument(
        "--measured", type=Path, nargs="+", default=[], metavar="DIR", help="measurements.jsonl, programs/"
    )
    parser.add_argument("--solvers", type=Path, nargs="+", default=[], metavar="CSV", help="calls of dense solvers")
    parser.add_argument("--split", choices=SPLITS, default="all", help="which half of the measured programs")
    parser.add_argument(
        "--settings", type=Path, metavar="NPZ", help="an earlier file of this command, whose lengths and noises stay"
    )
    given = parser.parse_args(arguments)
    try:
        device = resolve(given.on).device
        earlier = given_kernels(given.settings, device).interpolator if given.settings else None
        found = collect(device, given.profile, given.measured, given.split, solvers=given.solvers, earlier=earlier)
        found.save(given.out)
    except MeshcastError as error:
        _say(f"meshcast: {error.code}: {error}")
        return error.exit_code
    for name, family in found.families.items():
        print(f"{len(family):6}  {name}")
    print(f"{sum(map(len, found.families.values())):6}  in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
