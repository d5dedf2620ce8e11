"""Runs in SCALE-Sim's own Python: CONFIG TOPOLOGY LAYOUT, reports under out/, no traces; knows nothing of meshcast."""

from __future__ import annotations

import sys


def main(config: str, topology: str, layout: str) -> None:
    """Writes SCALE-Sim's reports."""
    from scalesim.scale_sim import scalesim  # type: ignore[import-not-found]

    # Its own command line has a flag for traces, -s, that it does not heed: they take longer than the simulation.
    run = scalesim(save_disk_space=True, verbose=False, config=config, topology=topology, layout=layout)
    run.run_scale(top_path="out")


if __name__ == "__main__":
    main(*sys.argv[1:])
