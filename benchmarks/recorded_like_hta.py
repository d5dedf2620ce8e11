"""Where a recorded job's time goes by our replay, beside Holistic Trace Analysis on the profiles themselves, for all ranks.

    python benchmarks/recorded_like_hta.py INPUTS --python PYTHON

INPUTS is et_replay/tests/inputs of facebookresearch/param, unpacked; PYTHON an interpreter with Holistic Trace Analysis
(`make .venv/.hta-ready`: .venv/hta/bin/python).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from meshcast.jobs import find_traces
from meshcast.traces import link_traces, understood

PROCESS = Path(__file__).parents[1] / "tests" / "traces" / "hta_process.py"
COLUMNS = ("compute_time(us)", "non_compute_time(us)", "idle_time(us)")


def main() -> None:
    """Prints a line a rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--python", type=Path, required=True)
    asked = parser.parse_args()
    profiles = asked.inputs / "dlrm_kineto"
    with tempfile.TemporaryDirectory() as folder:
        link_traces([asked.inputs / "dlrm_pytorch_et"], [profiles], Path(folder))
        found = understood(find_traces(Path(folder) / "job"))
        command = [asked.python, PROCESS, "--times", profiles]
        said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    theirs = {row["rank"]: [float(row[name]) for name in COLUMNS] for row in said["temporal"]}
    print("| rank | computing | HTA | communication alone | HTA | idle | HTA |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    worst = 0.0
    for each in found.ranks:
        ours = [1e6 * seconds for seconds in (each.computing, each.not_computing, each.idle)]
        pairs = list(zip(ours, theirs[each.rank], strict=True))
        worst = max(worst, *(abs(mine - other) for mine, other in pairs))
        print(f"| {each.rank} | " + " | ".join(f"{mine:,.1f} | {other:,.1f}" for mine, other in pairs) + " |")
    longest = max(each.span for each in found.ranks)
    print(f"at most {worst:.1f} us apart, {worst * 1e-6 / longest:.3%} of the longest span of a device")


if __name__ == "__main__":
    main()
