"""Runs in ZigZag's own Python: ACCELERATOR MAPPING WORKLOAD, the answer in answer.json; knows nothing of meshcast."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path


def main(accelerator: str, mapping: str, workload: str) -> None:
    """Writes the cycles of the fastest mapping that ZigZag finds."""
    from zigzag import api  # type: ignore[import-not-found]

    logging.disable(logging.CRITICAL)
    _, _, layers = api.get_hardware_performance_zigzag(
        workload, accelerator, mapping, opt="latency", dump_folder="out", pickle_filename="out/layers.pickle",
        loma_show_progress_bar=False,
    )  # fmt: skip
    best = layers[0][0]
    # Without any stall, and with all of them, loading before and writing back after the layer among them; the array's own
    # energy in pJ.
    answer = {"ideal": best.ideal_temporal_cycle, "total": best.latency_total2, "energy": best.mac_energy}
    Path("answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
