"""Real recordings linked and replayed: what is linked, CPU seconds, memory, and the replayed span beside the measured one.

python benchmarks/linked_traces.py INPUTS            # et_replay/tests/inputs of facebookresearch/param, unpacked
python benchmarks/linked_traces.py INPUTS --slope 1 4 40    # and memory by the size of a profile: of copies of one of them
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshcast import predict
from meshcast.traces import link_traces

RECORDINGS = {
    "DLRM": ("dlrm_pytorch_et", "dlrm_kineto"),
    "linear": ("linear_et.json.gz", "linear_kineto.json.gz"),
    "ResNet, the profile alone": (None, "resnet_kineto.json.gz"),
}
NUMBERS = 10_000_000  # by which the numbers of copies are apart
GAP = 1000  # us between two copies


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--slope", type=int, nargs="+", default=[], metavar="COPIES")
    asked = parser.parse_args()
    print("| recording | ranks | nodes | operators linked | device work linked | measured, ms | replayed | CPU, s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, (host, device) in RECORDINGS.items():
        with tempfile.TemporaryDirectory() as folder:
            begun = time.process_time()
            hosts = [] if host is None else [asked.inputs / host]
            said = link_traces(hosts, [asked.inputs / device], Path(folder)).summary
            spent = time.process_time() - begun
            replayed = predict(Path(folder) / "job", on="dgx-h100", durations="trace").step_time_s
        ranks, measured = said["ranks"], said["measured_span_s"]
        counts = [
            sum(each[key] for each in ranks)
            for key in ("nodes", "linked_operators", "operators", "linked_device_work", "device_work")
        ]
        assert replayed is not None
        print(
            f"| {name} | {len(ranks)} | {counts[0]:,} | {counts[1]:,} of {counts[2]:,} | {counts[3]:,} of {counts[4]:,} | "
            f"{measured * 1e3:,.3f} | {replayed / measured - 1:+.3%} | {spent:.1f} |"
        )
    if asked.slope:
        _slope(asked.inputs / "resnet_kineto.json", asked.slope)


def _slope(profile: Path, copies: Sequence[int]) -> None:
    """Memory and CPU of the whole command by the size of a profile: copies behind each other in time, one file."""
    whole = json.loads(profile.read_text())
    events = whole["traceEvents"]
    begin = min(each["ts"] for each in events if "ts" in each)
    length = max(each["ts"] + each.get("dur", 0) for each in events if "ts" in each) - begin + GAP
    with tempfile.TemporaryDirectory() as folder:
        for count in copies:
            path, out = Path(folder) / f"{count}.json", Path(folder) / "linked"
            with path.open("w") as file:
                file.write('{"traceEvents": [')
                for copy in range(count):
                    file.write("," if copy else "")
                    file.write(",".join(json.dumps(_later(each, copy, length)) for each in events))
                file.write("]}")
            command = [sys.executable, "-m", "meshcast", "trace", "link", "--device", str(path), "-o", str(out)]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
                _, status, spent = os.wait4(child.pid, 0)  # of this child alone
                child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
            nodes = json.loads((out / "job.linked.json").read_text())["ranks"][0]["nodes"]
            print(
                f"{path.stat().st_size / 1e6:,.0f} MB: {nodes:,} nodes, {spent.ru_maxrss / 1e3:,.0f} MB at most, "
                f"{spent.ru_utime + spent.ru_stime:.0f} s of CPU", flush=True,
            )  # fmt: skip
            path.unlink()


def _later(event: dict[str, Any], copy: int, length: float) -> dict[str, Any]:
    """An event as it would be in a later copy: at its time, with numbers of its own."""
    moved = dict(event)
    if "ts" in moved:
        moved["ts"] += copy * length
    said = moved.get("args")
    if isinstance(said, dict):
        moved["args"] = {
            key: value + copy * NUMBERS if key in ("correlation", "External id") and isinstance(value, int) else value
            for key, value in said.items()
        }
    return moved


if __name__ == "__main__":
    main()
