"""Real recordings linked and replayed: what is linked, CPU seconds, memory, and the replayed span beside the measured one.

python benchmarks/linked_traces.py INPUTS            # et_replay/tests/inputs of facebookresearch/param, unpacked
python benchmarks/linked_traces.py INPUTS --slope    # and memory by the size of a profile, of copies of one of them
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from meshcast import predict
from meshcast.recorded import link_traces

RECORDINGS = {
    "DLRM": ("dlrm_pytorch_et", "dlrm_kineto"),
    "linear": ("linear_et.json.gz", "linear_kineto.json.gz"),
    "ResNet, the profile alone": (None, "resnet_kineto.json.gz"),
}
COPIES = (1, 4, 16)  # of a profile behind each other in one file


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--slope", action="store_true")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.read is not None:
        _read(asked.read)
        return
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
        _slope(asked.inputs / "resnet_kineto.json")


def _slope(profile: Path) -> None:
    """Memory and CPU of reading a profile by its size, each in a process of its own."""
    events = json.loads(profile.read_text())["traceEvents"]
    with tempfile.TemporaryDirectory() as folder:
        for copies in COPIES:
            path = Path(folder) / f"{copies}.json"
            with path.open("w") as out:
                out.write('{"traceEvents": [')
                for copy in range(copies):
                    out.write(",".join(json.dumps(each) for each in events) + ("," if copy < copies - 1 else ""))
                out.write("]}")
            command = [sys.executable, __file__, ".", "--read", str(path)]
            answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            print(f"{path.stat().st_size / 1e6:.0f} MB: {answer.strip()}")


def _read(path: Path) -> None:
    from meshcast.recorded.events import read_device_trace

    begun = time.process_time()
    found = read_device_trace(path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    kept = len(found.host) + len(found.work)
    print(f"{found.read:,} events, {kept:,} kept, {time.process_time() - begun:.1f} s of CPU, {peak:.0f} MB")


if __name__ == "__main__":
    main()
