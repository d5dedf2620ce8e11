"""`make bench`, third part: collectives by our preset of ASTRA-sim's rules against ASTRA-sim itself, in one run.

Where its programs are not on the PATH the times are held against what was measured elsewhere: 20 s of CPU for the
congestion-aware run of one 1 GiB all-reduce of 1,024 devices on a ring, in 4 chunks. Answers are checked to be equal.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from meshcast.evidence.validate.astra import AstraSetting, read_astra_rows
from meshcast.network.astra import AstraDimension, AstraNetwork, AstraSystem, astra_available, finish_ns, run_collective

ROWS = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "astra_sim.csv"
ELSEWHERE_S = 20.0
LEAST_RATIO = 20
REPEATS = 5
NETWORK = AstraNetwork(dimensions=(AstraDimension(shape="Ring", npus=1024, bandwidth=50.0, latency_ns=500.0),))
SYSTEM = AstraSystem(all_reduce=("ring",), splits=4, optimisation="localBWAware", local_memory_bandwidth=1600.0)


def main() -> None:
    """Times both and prints the ratio.

    Raises:
        SystemExit: An answer differs, or the ratio is too small.
    """
    rows = read_astra_rows(ROWS, AstraSetting())
    begun = time.perf_counter()
    equal = sum(finish_ns(row.network, row.system, row.kind, row.size, row.backend) == row.finish_ns for row in rows)
    print(f"{len(rows)} collectives in {time.perf_counter() - begun:.3f} s, {equal} equal to the nanosecond")
    if equal != len(rows):
        raise SystemExit(f"{len(rows) - equal} answers differ from ASTRA-sim's")
    seconds = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        ours = finish_ns(NETWORK, SYSTEM, "all_reduce", 1 << 30, "Aware")
        seconds.append(time.perf_counter() - begun)
    mine = statistics.median(seconds)
    theirs, source = ELSEWHERE_S, "measured elsewhere"
    if "Aware" in astra_available():
        begun = time.perf_counter()
        found = run_collective(NETWORK, SYSTEM, "all_reduce", 1 << 30, "Aware").finish_ns
        theirs, source = time.perf_counter() - begun, "here"
        if found != ours:
            raise SystemExit(f"ASTRA-sim says {found} ns, the preset {ours} ns")
    print(
        f"1 GiB all-reduce of 1,024 NPUs, congestion-aware: {ours / 1e6:.3f} ms predicted in {mine:.3f} s; "
        f"ASTRA-sim {theirs:.1f} s ({source}); ratio {theirs / mine:.0f}"
    )
    if theirs / mine < LEAST_RATIO:
        raise SystemExit(f"the ratio is below {LEAST_RATIO}")


if __name__ == "__main__":
    main()
