"""What a program costs that a warm process sees for the first time, stage by stage, beside its MLIR parse alone.

Every program is predicted in processes of its own, which have predicted another one before: what imports, catalogues and
fits take is paid by then, and nothing is known of this one. Kernels are modelled: no GPU compiler is asked, nor is what
one answered before. Figures are medians of CPU seconds over the processes. `--on` and `--fidelity` ask for other hardware and
models of it; `--passes` has the passes of the lowering told one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from programs_by_size import chain, layers

if TYPE_CHECKING:
    from meshcast import Options
    from meshcast.lower.passes import LoweringPass, PassTable

T = TypeVar("T")
STAGES = ("capture", "partition", "read", "lower", "estimate", "simulate", "memory", "results")
IN_VAIN = "passes that do not apply"
SHOWN_S = 0.0004  # passes that take less are told together
WARMING = "bert-tiny"  # a training step of another family: what its kernels are estimated with is loaded by then
# By name: a model of the zoo with its settings, or a text.
MODELS = {
    "GPT-2 small, training step": ("gpt2-small", {"batch": "8"}),
    "ResNet-50, training step": ("resnet50", {"batch": "32"}),
    "Llama 3 8B, forward pass": ("llama3-8b", {"batch": "1", "seq": "2048", "mode": "forward"}),
}
TEXTS: dict[str, Callable[[], str]] = {
    "layers of merged products, 7,000 ops": lambda: layers(7_000),
    "a chain of products, 100,000 ops": lambda: chain(100_000),
}


class Clock:
    """CPU seconds of calls, by name."""

    def __init__(self) -> None:
        """Begins with none."""
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, call: Callable[[], T]) -> T:
        """What the call returns."""
        began = time.process_time()
        made = call()
        self.seconds[name] = time.process_time() - began
        return made


def measured(path: Path, warming: Path, asked: Mapping[str, str], *, staged: bool) -> dict[str, float]:
    """Seconds of this process: of a prediction as a whole or of its stages, then of the bare parse; `asked` are options."""
    import meshcast as mc
    from meshcast.programs import mlir

    options = mc.Options(**asked)
    mc.predict(str(warming), options)
    clock = Clock()
    if staged:
        _stages(str(path), str(warming), options, clock)
    else:
        clock("predict", lambda: mc.predict(str(path), options))
    text = path.read_text()
    mlir.parse_module(text, where="warm")
    clock("parse", lambda: mlir.parse_module(text, where="floor"))
    return clock.seconds


def _stages(path: str, warming: str, options: Options, clock: Clock) -> None:
    """The stages of a prediction one after the other; collections of garbage put off as `predict` does."""
    import meshcast as mc
    from meshcast.base.garbage import collected_later

    other = mc.prepare(warming, options)
    with collected_later():
        program = clock("capture", lambda: mc.load(path))
        local = clock("partition", lambda: program.partition())
        workload = clock("read", lambda: local.workload())
        lowered = clock("lower", lambda: workload.lower(backend=other.lowered.backend))
        run = replace(other, lowered=lowered, devices=program.devices)
        clock("estimate", lambda: run.full_clock)
        clock("simulate", lambda: run.timeline)
        clock("memory", lambda: run.memory)
        clock("results", run.predict)


def pass_seconds(path: Path, warming: Path, asked: Mapping[str, str]) -> dict[str, float]:
    """CPU seconds of this process by pass of the lowering, blocks added up; of what a pass's question takes that is answered no,
    together; and of the whole.
    """
    import meshcast as mc
    from meshcast.base.garbage import collected_later
    from meshcast.lower.pass_tables import TABLES

    backend = mc.prepare(str(warming), mc.Options(**asked)).lowered.backend
    mc.predict(str(warming), mc.Options(**asked))
    workload = mc.load(str(path)).partition().workload()
    clock = Clock()
    seconds: dict[str, float] = {}
    TABLES[backend]["compiler"] = _timed(TABLES[backend]["compiler"], seconds)
    with collected_later():
        clock("lower", lambda: workload.lower(backend=backend))
    return seconds | clock.seconds


def _timed(table: PassTable, seconds: dict[str, float]) -> PassTable:
    """The same passes, which add what they take to `seconds`."""

    def timed(each: LoweringPass[Any]) -> LoweringPass[Any]:
        def applies(draft: Any) -> bool:
            began = time.process_time()
            found = each.applies(draft)
            name = each.name if found else IN_VAIN
            seconds[name] = seconds.get(name, 0.0) + time.process_time() - began
            return found

        def run(draft: Any) -> None:
            began = time.process_time()
            each.run(draft)
            seconds[each.name] += time.process_time() - began

        return replace(each, applies=applies, run=run)

    return replace(
        table,
        ops=tuple(map(timed, table.ops)),
        steps=tuple(map(timed, table.steps)),
        program=tuple(map(timed, table.program)),
    )


def text_of(model: str, settings: Mapping[str, str] | None = None) -> str:
    """The StableHLO of a model of the zoo."""
    import meshcast as mc
    from meshcast.programs import CaptureOptions

    return mc.load(model, CaptureOptions(settings=settings or {})).text


def programs(folder: Path) -> dict[str, Path]:
    """The programs as files of StableHLO text."""
    found = {}
    for number, (name, (model, settings)) in enumerate(MODELS.items()):
        found[name] = folder / f"model{number}.mlir"
        found[name].write_text(text_of(model, settings))
    for number, (name, text) in enumerate(TEXTS.items()):
        found[name] = folder / f"text{number}.mlir"
        found[name].write_text(text())
    return found


def medians(
    path: Path, warming: Path, asked: Mapping[str, str], repeats: int, ways: Sequence[str] = ("--whole", "--staged")
) -> dict[str, float]:
    """Median seconds over processes, by name; `asked` are options of the prediction, `ways` those of a process of ours."""
    seconds: dict[str, list[float]] = {}
    modelled = {**os.environ, "MESHCAST_GPU_COMPILER": "none"}
    for way in ways:
        command = [sys.executable, __file__, way, "--one", str(path), "--warming", str(warming)]
        command += [word for name, value in asked.items() for word in (f"--{name}", value)]
        for _ in range(repeats):
            done = subprocess.run(command, check=True, capture_output=True, env=modelled)
            for name, value in json.loads(done.stdout).items():
                seconds.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in seconds.items()}


def told(what: str, seconds: Mapping[str, float]) -> str:
    """A program's passes, the longest first."""
    passes = {name: value for name, value in seconds.items() if name not in ("lower", IN_VAIN)}
    shown = sorted((name for name, value in passes.items() if value >= SHOWN_S), key=lambda name: -passes[name])
    parts = [f"{name} {1e3 * passes[name]:.1f}" for name in shown]
    parts.append(
        f"{len(passes) - len(shown)} others {1e3 * sum(passes[name] for name in passes if name not in shown):.1f}"
    )
    parts.append(f"{IN_VAIN} {1e3 * seconds[IN_VAIN]:.1f}")
    parts.append(f"making steps and the rest {1e3 * (seconds['lower'] - sum(passes.values()) - seconds[IN_VAIN]):.1f}")
    return f"{what}: lowering {1e3 * seconds['lower']:.1f} ms\n  " + ", ".join(parts)


def main() -> None:
    """Prints a table, or one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="programs with this in their names")
    parser.add_argument("--on", default="h200")
    parser.add_argument("--fidelity", default="auto")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--warming", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--staged", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--passes", action="store_true", help="what every pass of the lowering takes")
    options = parser.parse_args()
    asked = {"on": options.on, "fidelity": options.fidelity}
    if options.one is not None and options.passes:
        print(json.dumps(pass_seconds(options.one, options.warming, asked)))
        return
    if options.one is not None:
        print(json.dumps(measured(options.one, options.warming, asked, staged=options.staged)))
        return
    with tempfile.TemporaryDirectory() as name:
        found = programs(Path(name))
        warming = Path(name) / "warming.mlir"
        warming.write_text(text_of(WARMING))
        for what, path in found.items():
            if options.only not in what:
                continue
            if options.passes:
                seconds = medians(path, warming, asked, options.repeats, ("--passes",))
                print(
                    json.dumps({"what": what, "seconds": seconds}) if options.json else told(what, seconds), flush=True
                )
                continue
            seconds = medians(path, warming, asked, options.repeats)
            ratio = seconds["predict"] / seconds["parse"]
            if options.json:
                print(json.dumps({"what": what, "ratio": ratio, "seconds": seconds}), flush=True)
                continue
            print(
                f"{what}: {1e3 * seconds['predict']:.1f} ms = {ratio:.1f} x its parse of {1e3 * seconds['parse']:.1f} ms"
            )
            print("  " + ", ".join(f"{stage} {1e3 * seconds[stage]:.1f}" for stage in STAGES), flush=True)


if __name__ == "__main__":
    main()
