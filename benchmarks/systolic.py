"""`make bench`, second part: ResNet-18's layers on one systolic array, our model against SCALE-Sim itself, in one run.

Both get the same array and the same layers, all 21 of them, repeated ones too; answers are checked to be equal. SCALE-Sim's time
is that of one process, traces off. Ours is the median of calls in a warm process; that of a cold command is printed beside it.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from meshcast.base.errors import UnsupportedError
from meshcast.estimate.outside.environment import SCALESIM
from meshcast.estimate.outside.scalesim import PROCESS
from meshcast.estimate.systolic import ArrayBuffer, Layer, SystolicArray, simulate
from meshcast.estimate.systolic.files import WORDS_PER_KB, config_text, layout_text, read_layers, topology_text

LAYERS = Path(__file__).with_name("resnet18.csv")
LEAST_RATIO = 10_000


def chosen_array(sram: Sequence[int], bandwidth: int, size: int, dataflow: str) -> SystolicArray:
    """A square array with scratchpads of so many kB."""
    ifmap, filters, ofmap = (ArrayBuffer(words=kb * WORDS_PER_KB, bandwidth=bandwidth) for kb in sram)
    return SystolicArray(
        rows=size, columns=size, dataflow=dataflow, ifmap=ifmap, filter=filters, ofmap=ofmap,  # type: ignore[arg-type]
    )  # fmt: skip


def scale_sim(layers: Sequence[Layer], array: SystolicArray) -> tuple[float, list[tuple[int, int]]]:
    """(seconds of SCALE-Sim's process, total and stall cycles of every layer)."""
    python, _ = SCALESIM.ready()
    texts = {
        "config.cfg": config_text(array), "topology.csv": topology_text(layers), "layout.csv": layout_text(layers),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        for file, text in texts.items():
            (Path(name) / file).write_text(text)
        start = time.perf_counter()
        subprocess.run([python, "-I", PROCESS, *texts], cwd=name, check=True, capture_output=True)
        seconds = time.perf_counter() - start
        with (Path(name) / "out" / "meshcast" / "COMPUTE_REPORT.csv").open(newline="") as report:
            rows = list(csv.reader(report, skipinitialspace=True))[1:]
    return seconds, [(int(row[2]), int(row[3])) for row in rows]


def warm_seconds(layers: Sequence[Layer], array: SystolicArray, repeats: int) -> float:
    """Median time of one call for all layers."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        simulate(layers, array)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def cold_seconds(array: SystolicArray) -> float:
    """The command, from nothing to printed."""
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "array.cfg"
        config.write_text(config_text(array))
        command = [sys.executable, "-m", "meshcast", "systolic", "--config", config, "--layers", LAYERS, "--json"]
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start


def main() -> None:
    """Prints the ratio, for people or as one JSON line; fails where answers differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--size", type=int, default=128, help="rows and columns of the array")
    parser.add_argument("--dataflow", default="ws")
    parser.add_argument("--sram", type=int, nargs=3, default=(4096, 4096, 8192), metavar="KB")
    parser.add_argument("--bandwidth", type=int, default=60, help="words a cycle")
    options = parser.parse_args()
    layers = read_layers(LAYERS)
    array = chosen_array(options.sram, options.bandwidth, options.size, options.dataflow)
    ours = [(result.total_cycles, result.stall_cycles) for result in simulate(layers, array)]
    warm, cold = warm_seconds(layers, array, 21), cold_seconds(array)
    print(f"ResNet-18, {len(layers)} layers: running SCALE-Sim, some minutes ...", file=sys.stderr, flush=True)
    try:
        theirs, answers = scale_sim(layers, array)
    except UnsupportedError as error:
        print(f"ResNet-18 against SCALE-Sim: skipped, {error}", file=sys.stderr)
        return
    if answers != ours:
        sys.exit(f"answers differ: ours {ours}, SCALE-Sim's {answers}")
    ratio = theirs / warm
    figure = {
        "what": "ResNet-18's layers on a systolic array", "array": f"{array.rows}x{array.columns} {array.dataflow}",
        "sram_kb": list(options.sram), "bandwidth": options.bandwidth, "layers": len(layers),
        "cycles": sum(total for total, _ in ours), "stall_cycles": sum(stalls for _, stalls in ours),
        "seconds": warm, "cold_seconds": cold, "scalesim_seconds": theirs, "ratio": ratio,
    }  # fmt: skip
    if options.json:
        print(json.dumps(figure))
        return
    verdict = "" if ratio >= LEAST_RATIO else "  MISSED"
    print(
        f"ResNet-18's {len(layers)} layers on {figure['array']}, the same {figure['cycles']:,} cycles: {warm * 1e3:.2f} ms "
        f"({cold:.2f} s as a cold command), SCALE-Sim {theirs:.1f} s = {ratio:,.0f} x; budget {LEAST_RATIO:,} x{verdict}"
    )


if __name__ == "__main__":
    main()
