"""`make bench`: Chakra traces of a GPT-3-class step for a thousand and for thirty thousand ranks, and reading them back.

Each case runs in a process of its own. Files go to a temporary folder (`--folder`), and are gone afterwards; a case that does
not fit on its disk is left out, and says so.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SAME_STEP = 1e-9  # relative: what docs/traces.md says of export and import


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """GPT-3 under a plan, and what its traces may take."""

    plan: str
    batch: int
    ranks: int
    limit_s: float
    limit_bytes: int = 2 << 30  # of memory


CASES = (
    Case(plan="tp=8,pp=8,dp=16,mbs=1,remat=full", batch=256, ranks=1024, limit_s=5.0),
    Case(plan="tp=8,pp=16,dp=256,mbs=1,remat=full", batch=2048, ranks=32768, limit_s=90.0),
)


def measure(case: Case, folder: Path) -> dict[str, float | str]:
    """Seconds of the prediction, of making and writing all ranks' traces, and of one file a class read back."""
    from meshcast import predict
    from meshcast.base.errors import InfeasibleError
    from meshcast.jobs import PipelineJob, resolve_job
    from meshcast.jobs.nodes.flattening import Detail
    from meshcast.jobs.nodes.pipelines import pipeline_trace
    from meshcast.options.options import Options
    from meshcast.traces.chakra import ChakraFiles, planned, write

    options = Options(on="dgx-h100", plan=case.plan, settings={"batch": str(case.batch), "seq": "2048"})
    start = time.perf_counter()
    job = resolve_job("gpt3-175b", options)
    assert isinstance(job, PipelineJob)
    assembled = job.assembled()
    predicted = time.perf_counter()
    job = pipeline_trace(*assembled, Detail())
    files = ChakraFiles(prefix=folder / "gpt")
    what = planned(job, files)
    try:
        write(job, files, what)
    except InfeasibleError as error:
        return {"left_out": error.message}
    written = time.perf_counter()
    held = _peak_bytes()
    one = ChakraFiles(prefix=folder / "one", dedup=True)
    few = planned(job, one)
    write(job, one, few)
    begun = time.perf_counter()
    again = predict(folder / "one", on="dgx-h100").step_time_s or 0.0
    read = time.perf_counter()
    for path in folder.glob("gpt.*"):
        path.unlink()
    return {
        "predict_s": predicted - start,
        "write_s": written - predicted,
        "bytes": what.size,
        "peak_bytes": held,
        "dedup_s": begun - written,
        "dedup_bytes": few.size,
        "read_s": read - begun,
        "plain_s": plain_seconds(folder, len(what.files), what.size),
        "step_s": job.step_s,
        "step_again_s": again,
    }


def plain_seconds(folder: Path, files: int, size: int) -> float:
    """Seconds in which as many files with as many bytes are written, all of them the same: what the disk needs."""
    content = bytes(size // files)
    begun = time.perf_counter()
    for number in range(files):
        with (folder / f"plain.{number}.et").open("wb", buffering=0) as out:
            out.write(content)
    return time.perf_counter() - begun


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def kept(case: Case, found: dict[str, float]) -> bool:
    """Whether a case took no more than it may, and its traces give the step that they were made of."""
    same = math.isclose(found["step_s"], found["step_again_s"], rel_tol=SAME_STEP)
    return same and found["write_s"] < case.limit_s and found["peak_bytes"] < case.limit_bytes


def main() -> None:
    """Prints the figures for people, or as JSON lines; `--case N` measures one of them in this process.

    Exits with 1 where a case is missed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", type=int)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.case is not None:
        print(json.dumps(measure(CASES[asked.case], asked.folder)))
        return
    missed = False
    for number, case in enumerate(CASES):
        with tempfile.TemporaryDirectory(prefix="meshcast-traces-", dir=asked.folder) as folder:
            command = [sys.executable, __file__, "--case", str(number), "--folder", folder]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        held = "left_out" in found or kept(case, found)
        missed |= not held
        if asked.json:
            print(json.dumps({"plan": case.plan, "ranks": case.ranks, **found}), flush=True)
        elif "left_out" in found:
            print(f"Chakra traces of {case.ranks:,} ranks: left out, {found['left_out']}")
        else:
            print(
                f"Chakra traces of {case.ranks:,} ranks (gpt3-175b, {case.plan}): {found['write_s']:.1f} of {case.limit_s:g} s, "
                f"{found['bytes'] / 1e6:,.0f} MB, {found['write_s'] / found['plain_s']:.1f} times plain writing, "
                f"{found['peak_bytes'] / 1e6:.0f} MB of memory, after {found['predict_s']:.1f} s of prediction; "
                f"--dedup {found['dedup_s']:.1f} s, {found['dedup_bytes'] / 1e6:,.1f} MB, read back in "
                f"{found['read_s']:.1f} s: a step of {found['step_again_s']:.6g} s, written {found['step_s']:.6g}: "
                f"{'kept' if held else 'MISSED'}",
                flush=True,
            )
    if missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
