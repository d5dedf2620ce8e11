"""`python -m meshcast.evidence.calibrate OUT`: measures the device that JAX finds; needs jax alone.

The rows have no kernels of ours yet: `meshcast calibrate --relower OUT` adds them, on any machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from meshcast.base import MeshcastError
from meshcast.evidence.calibrate.request import CalibrationRequest, run_request
from meshcast.evidence.calibrate.session import CalibrationProgress


def main() -> int:
    """Measures, with a line a batch on stderr."""
    parser = argparse.ArgumentParser(prog="python -m meshcast.evidence.calibrate", description=__doc__)
    parser.add_argument("out", type=Path, help="NAME.profile.jsonl.gz; taken up where it ended if it is there")
    parser.add_argument("--minutes", type=float, default=9.0, help="stop after this long")
    parser.add_argument("--families", default="", help="only these, separated by commas")
    parser.add_argument("--limit", type=int, help="only the first of the suite")
    parser.add_argument("--on", dest="name", help="what to call the device")
    parser.add_argument("--keep-hlo", type=Path, help="folder for the optimized HLO of probes with several kernels")
    given = parser.parse_args()
    families = tuple(filter(None, given.families.split(",")))
    try:
        request = CalibrationRequest(
            out=given.out,
            minutes=given.minutes,
            families=families,
            limit=given.limit,
            name=given.name,
            keep_hlo=given.keep_hlo,
        )
        outcome = run_request(request, _line)
    except MeshcastError as error:
        print(f"meshcast: {error.code}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"meshcast: interrupted; the same command goes on from {given.out}", file=sys.stderr)
        return 130
    print(outcome.text(), file=sys.stderr)
    return 0


def _line(progress: CalibrationProgress) -> None:
    print(
        f"{progress.seconds:6.1f} s  {progress.done}/{progress.total} probes, {progress.failed} failed, {progress.stage}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
