"""Writes the plan that torchrec's own planner makes of some tables, for `meshcast tables plan TABLES --against PLAN.json`.

    python benchmarks/torchrec_plan.py TABLES.json PLAN.json --devices 8 --batch 8192 [--memory 72e9]

TABLES.json is what `meshcast tables show TABLES --json` prints. It needs torch, torchrec and fbgemm-gpu-cpu, no GPU: tables
are never allocated. `--batch` counts the samples of one device, as torchrec's planner does.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.types import ParameterConstraints


def main() -> None:
    """Plans, and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--node", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--memory", type=float, default=72e9)
    given = parser.parse_args()
    tables = [json.loads(line) for line in given.tables.read_text().splitlines()]
    configs = [
        EmbeddingBagConfig(
            name=each["table"], num_embeddings=each["rows"], embedding_dim=each["dim"], feature_names=[f"f_{each['table']}"]
        )
        for each in tables
    ]  # fmt: skip
    constraints = {each["table"]: ParameterConstraints(pooling_factors=[each["pooling"]]) for each in tables}
    topology = Topology(
        world_size=given.devices, local_world_size=min(given.node, given.devices), compute_device="cuda",
        hbm_cap=int(given.memory),
    )  # fmt: skip
    planner = EmbeddingShardingPlanner(topology=topology, batch_size=given.batch, constraints=constraints)
    model = EmbeddingBagCollection(device=torch.device("meta"), tables=configs)
    found = planner.plan(model, [EmbeddingBagCollectionSharder()])
    plan = [
        {"table": name, "sharding": each.sharding_type, "ranks": list(each.ranks or [])}
        for module in found.plan.values()
        for name, each in module.items()
    ]
    given.plan.write_text(json.dumps(plan, indent=1) + "\n")


if __name__ == "__main__":
    main()
