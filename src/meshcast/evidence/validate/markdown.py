"""`docs/accuracy.md`: a validation as a page, the same for everyone who runs it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from meshcast.evidence.validate.summary import Summary
from meshcast.evidence.validate.tables import (
    extra_grid,
    failed_grid,
    halves_grid,
    markdown_table,
    peer_grid,
    time_grid,
    worst_grid,
)
from meshcast.hardware import resolve

MEASURES = """\
## What the figures mean

With p predicted and m measured:

- **geomean error** is exp(mean |ln(p / m)|) - 1: 25 % reads "off by a factor of 1.25, up or down".
- **MAPE** is the mean of |p - m| / m.
- **bias** is exp(mean ln(p / m)) - 1, the geometric mean of p / m less one: negative means that we predict too
  short a time.
- **Spearman** is the correlation of the ranks, ties sharing the mean of theirs: 1 means every pair of programs is
  in the right order. It is left out where a group has a single row.
- **measured / predicted** is the median of m / p.
"""

_MEANING = """\
- **in interval** is the share of rows whose measured time lies in the interval that the prediction states.

One-op groups are held against the device's busy time, since the host cannot launch the smallest of them fast enough
for a wall clock to see the device; whole models are held against wall time. Failed rows have no prediction: they
are counted and named, and no other column includes them.
"""

_HALVES = """\
The same rows in two halves, by a hash of their names; variants of a model share the half of their family. {}
"""
_FITTED_ALONE = """\
Parameters (but for energies) and measured kernels come from the fitted half alone: the other half is what any other
program of its kind can expect.
The file of measured kernels is made by

    {}\
"""
_MODELLED = """\
Parameters (but for energies) come from the fitted half alone: the other half is what any other program of its kind can
expect, as far as the mechanisms were not found by looking at it."""
_BOTH = """\
Measured kernels come from both halves: neither shows what an unseen program can expect."""

_PEERS = """\
The same rows and the same measured times, with the rows that a tool has no answer for. hespas is a published StableHLO
tool at its roofline setting and its own H200 preset; naive a sums max(FLOPs / peak, bytes / bandwidth) per op without
fusion; naive b adds a crude fusion and 3 us per kernel.
"""

_ROOFLINE = """\
At fidelity `roofline` a prediction is a bound, the speed of light, and not a guess of the time: it holds no
launches, tiles, library heuristics or clocks. Its bias is negative by construction, and its interval opens upwards
only. The upper end is fitted on one half of the programs (`meshcast validate intervals`), two numbers for all of
them. A program that runs faster than its bound shows a count of FLOPs or bytes that is too high, a peak that is too
low, or data that stayed in a cache.
"""

_ENERGY = """\
Measured energy is per run of a program that ran without pause for seconds; for one-op programs the idle power over
the time that the card waited for the host is taken out, as it is from the time. Power depends on the values too: on an
H200 a product of random numbers draws 688 W at 1.46 GHz, one of NaNs or of equal numbers 457 W at 1.80 GHz (adding
arrays: 632 and 465 W). Predictions are for values that look random; a training step that was repeated until its values
had diverged draws less.
"""

_SUSTAINED = """\
Microseconds of a run among many without pause, at the clock that the power cap leaves; ops that waited for the host for
more than a tenth of the time are left out.
"""

_MEMORY = """\
Arguments + outputs + temporaries - aliased, against the compiler's buffer assignment, which includes the workspaces
of its libraries.
"""


def relative(path: Path) -> str:
    """A path as pages and commands write it: from the working directory."""
    return Path(os.path.relpath(path)).as_posix()


def rows_command(kind: str, file: Path, asked: str) -> str:
    """The command that judges a file of rows again, without the page that it is written to."""
    return f"meshcast validate {kind} {relative(file)}{asked}"


def made_by(command: str, page: Path) -> str:
    """The lines of a page that name the command which makes its tables again.

    Args:
        command: The command, without the page.
        page: The file that it is written to.
    """
    again = f"{command} --markdown {relative(page)}"
    return f"The tables below are generated; again, from the root of the repository:\n\n    {again}\n"


def accuracy_page(
    summary: Summary, *, folder: Path, on: str, fidelity: str, page: Path, profile: str | None = None,
    sources: Sequence[str] = (),
) -> str:  # fmt: skip
    """The page.

    Args:
        summary: The validation.
        folder: Where the measurements lie; written relative to the working directory.
        on: The device predicted for, as asked.
        fidelity: The fidelity predicted at, as asked.
        page: The file this is written to, for the command that makes it again.
        profile: The file of measured kernels, as asked.
        sources: What measured kernels the predictions are made with come from; none for models without.
    """
    place, target = relative(folder), relative(page)
    device = resolve(on).device
    more = (f" --profile {profile}" if profile else "") + (" --halves" if summary.halves else "")
    total = summary.time.all
    parts = [
        f"# Accuracy: fidelity `{fidelity}` on {device.title}\n",
        f"{total.rows} measured StableHLO programs, {total.failed} without a prediction. This page is generated; "
        "to make it again, from the root of the repository:\n",
        f"    meshcast validate programs {place} --on {on} --fidelity {fidelity}{more} --markdown {target}\n",
        f"## Time\n\n{markdown_table(time_grid(summary))}",
        MEASURES + _MEANING,
    ]
    if summary.halves:
        parts.append(f"## Two halves\n\n{markdown_table(halves_grid(summary))}\n{_halves(profile, on, sources)}")
    if fidelity == "roofline":
        parts.append(_ROOFLINE)
    if summary.peers:
        parts.append(f"## Geomean error beside peers\n\n{markdown_table(peer_grid(summary))}\n{_PEERS}")
    parts.append(f"## Worst rows\n\n{markdown_table(worst_grid('', summary.worst))}")
    if below := summary.below_speed_of_light:
        parts.append(f"## Faster than the interval's lower end\n\n{markdown_table(worst_grid('', below))}")
    if summary.memory.all.rows:
        parts.append(f"## Peak memory\n\n{markdown_table(extra_grid('', summary.memory))}\n{_MEMORY}")
    if summary.energy.all.rows:
        parts.append(f"## Energy\n\n{markdown_table(extra_grid('', summary.energy))}\n{_ENERGY}")
    if summary.sustained.all.rows:
        parts.append(f"## Sustained time\n\n{markdown_table(extra_grid('', summary.sustained))}\n{_SUSTAINED}")
    if summary.failed:
        parts.append(f"## Failed\n\n{markdown_table(failed_grid(summary.failed))}")
    return "\n".join(parts)


def _halves(profile: str | None, on: str, sources: Sequence[str]) -> str:
    """What the two halves are, and what has seen which."""
    if not sources:
        return _HALVES.format(_MODELLED)
    folders = [source for source in sources if source.endswith(")")]  # `NAME (split)`, as the collector notes them
    if not profile or any(not source.endswith("(fitted)") for source in folders):
        return _HALVES.format(_BOTH)
    given = " ".join(source.removesuffix(" (fitted)") for source in folders)
    files = " ".join(source for source in sources if source not in folders)
    collect = f"python -m meshcast.evidence.calibrate.collect {profile} --on {on}"
    command = f"{collect} --profile {files} --measured {given} --split fitted"
    return _HALVES.format(_FITTED_ALONE.format(command))
