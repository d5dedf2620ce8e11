"""A batch of compiled probes, run and timed.

Device time by kernel comes from a profile. Where it shows no device (a CPU has none) the host's clock is taken: the
shortest run less the time of an empty program, and the row says `"method": "wall"`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.estimate import ProfileRow
from meshcast.evidence.calibrate.backend import Backend
from meshcast.evidence.calibrate.compiling import Failed, Ready, short
from meshcast.evidence.calibrate.tracing import LaunchTrace, summarise, traced

MEASURED_S = 5e-3  # of runs a probe
FEWEST, MOST = 5, 30
LONG_S, LONG_RUNS = 0.02, 3  # one that takes longer needs fewer runs,
VERY_LONG_S = 0.3  # and one that was thought to be much faster has to do with one
# The least share of a run by the host's clock that is taken for the probe's own work, so that no time is zero or below: the
# shortest of five runs of an empty program scatters by 4 % on a CPU (5th to 95th percentile).
LEAST_LEFT = 0.05
WARM_S = 0.05  # of work before a batch, so that clocks are up


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """How a probe was run: all runs, the last of which were timed, and the shortest of those by the host's clock."""

    total: int
    kept: int
    shortest_s: float


def measure_batch(batch: Sequence[Ready | Failed], backend: Backend) -> list[ProfileRow]:
    """A row a probe, in order; one that fails says why and does not stop the others."""
    done: dict[str, _Runs | str] = {}
    seed = jax.block_until_ready(jnp.uint32(1))  # on the device before the profile begins: its copy is no probe's
    if backend.platform == "cpu":
        _run_all(batch, seed, done)
        trace = LaunchTrace()
    else:
        with traced() as trace:
            _spin()
            _run_all(batch, seed, done)
    return [_row(item, done.get(item.probe.id, ""), trace, backend) for item in batch]


def _run_all(batch: Iterable[Ready | Failed], seed: Any, done: dict[str, _Runs | str]) -> None:
    for item in batch:
        if isinstance(item, Failed):
            continue
        try:
            done[item.probe.id] = _run(item, seed)
        except Exception as error:  # out of memory, or a kernel that the device refuses
            done[item.probe.id] = short(error)


def _run(item: Ready, seed: Any) -> _Runs:
    """Runs a probe: once to warm up, once to see how long it takes, then back to back."""
    args = list(item.fill(seed))
    jax.block_until_ready(args)
    args, _ = _once(item, args)
    args, seconds = _once(item, args)
    kept = min(MOST, max(FEWEST, round(MEASURED_S / seconds)))
    if seconds > LONG_S:
        kept = LONG_RUNS if seconds <= VERY_LONG_S else 1
    shortest = seconds
    for _ in range(kept):
        args, seconds = _once(item, args)
        shortest = min(shortest, seconds)
    return _Runs(total=kept + 2, kept=kept, shortest_s=shortest)


def _once(item: Ready, args: list[Any]) -> tuple[list[Any], float]:
    """One run: the arguments of the next and its seconds."""
    start = time.perf_counter()
    results = jax.block_until_ready(item.run(*args))
    seconds = time.perf_counter() - start
    for position, argument in enumerate(item.body.donate):
        args[argument] = results[position]
    return args, seconds


def _spin() -> None:
    """Keeps the device at work for a moment."""
    square = jnp.full((4096, 4096), 0.01, jnp.bfloat16)
    start = time.perf_counter()
    while time.perf_counter() - start < WARM_S:
        jax.block_until_ready(_square(square))


@jax.jit
def _square(x: jax.Array) -> jax.Array:
    return x @ x


def _row(item: Ready | Failed, runs: _Runs | str, trace: LaunchTrace, backend: Backend) -> ProfileRow:
    """The file's row of a probe."""
    row: ProfileRow = {"id": item.probe.id, "family": item.probe.family}
    if isinstance(item, Failed):
        return row | {"error": item.error}
    if isinstance(runs, str):
        return row | {"error": runs}
    row |= {"runs": runs.kept, "compile_s": round(item.compile_s, 3), "mem": item.memory}
    if item.stablehlo:
        row["stablehlo"] = item.stablehlo
    if not trace.has_device:
        # Whatever is left when an empty program's time is taken off.
        left = max(runs.shortest_s - backend.dispatch_s, LEAST_LEFT * runs.shortest_s)
        return row | {"busy_us": round(left * 1e6, 3), "wall_us": round(runs.shortest_s * 1e6, 3), "method": "wall"}
    events = trace.events.get(item.number)
    if not events:
        return row | {"error": f"the profile shows no kernel of its {runs.total} runs"}
    busy, kernels, even = summarise(events, runs.total, runs.kept)
    row |= {"busy_us": round(busy, 3), "kernels": kernels}
    if not even:
        row["uneven"] = True
    return row
