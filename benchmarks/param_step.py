"""Holds a predicted step of torchrec's DLRM on eight V100s against the recorded one of facebookresearch/param.

    python benchmarks/param_step.py DIR [--host slow]

DIR has `worker0_*.json` to `worker7_*.json` of et_replay/tests/inputs/dlrm_kineto.tar.gz. Model, tables and plan are worked out
of them (`jobs/embedding_tables/recorded_trainer.py`), and the plan is compared with `data/measured/param-dlrm/plan.json`. The
same as

    meshcast compare dlrm-criteo --tables param-dlrm --on dgx-v100 --measured DIR
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from meshcast.hardware import resolve
from meshcast.jobs import measured_trainer, read_tables

PLAN = Path(__file__).parents[1] / "data/measured/param-dlrm/plan.json"


def main() -> None:
    """Reads, rebuilds, predicts, tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="slow")
    given = parser.parse_args()
    tables = read_tables("param-dlrm")
    found = measured_trainer(given.folder, tables, resolve("dgx-v100"), host=given.host)
    shipped = {each["table"]: each["ranks"] for each in json.loads(PLAN.read_text())}
    for rank, names in enumerate(found.recorded.held):
        same = all(shipped[name] == [rank] for name in names)
        print(f"rank {rank}: {', '.join(names)}{'' if same else '  which plan.json has elsewhere'}")
    for line in found.lines():
        print(line)


if __name__ == "__main__":
    main()
