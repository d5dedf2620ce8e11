"""A recommender's step with tables as a prediction's JSON: the contract's names, and the plan beside them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from meshcast.base import VERSION
from meshcast.hardware import resolve
from meshcast.jobs.embedding_tables.answer import TablesAnswer
from meshcast.jobs.embedding_tables.sharding import moved_bytes
from meshcast.jobs.embedding_tables.step import Load
from meshcast.results import SCHEMA

# Nine in ten whole steps set apart, of the sitting whose host is not known, lie within this factor of what is predicted
# (`benchmarks/recommender_steps.py`).
FACTOR = 1.17


def prediction_json(answer: TablesAnswer, model: str, defaults: tuple[str, ...] = ()) -> dict[str, Any]:
    """One object of `meshcast.prediction/1`, with all that `meshcast.tables-plan/1` has.

    The parts of the step are those of the rank that computes longest, and add up to it: dense layers are `compute`, look-ups and
    updates `memory`, and what the host takes longer is `idle`. Energy is not modelled, and null.
    """
    plan, question, problem = answer.to_json(), answer.question, answer.problem
    cluster, step, parts, ranks = resolve(question.on), answer.step, answer.step.parts_s, problem.ranks
    load, reduced = problem.loaded(answer.plan)
    longest, dense = step.slowest["computing"], problem.model.dense
    pooled = float(load[Load.TABLE : Load.MEMORY, longest].sum())
    names = [(each.name, each.rows, each.dim, each.pooling, each.dtype) for each in problem.tables]
    said = {
        "model": model, "batch": ranks.global_batch, "precision": question.dtype, "wire": question.wire,
        "host": question.host, "tables": len(names), "network": question.network,
    }  # fmt: skip
    # Of the step's parts the dense layers alone may be timed by measured kernels; tables and communication are modelled.
    measured = min(1.0, parts["dense"] / step.step_s) if dense.profiled else 0.0
    warnings = []
    if ranks.devices > 1 or cluster.device.name != "h200":
        warnings.append(
            "the interval is that of steps on one H200: on other devices and on several it may be too narrow"
        )
    exposed = sum(parts[name] for name in ("exposed_pooled", "exposed_reduced", "exposed_indices", "waiting"))
    return {
        **plan,
        "schema": SCHEMA,
        "model": model,
        "target": {
            "name": model, "sha256": hashlib.sha256(json.dumps(names).encode()).hexdigest(), "devices": ranks.devices,
            "mesh": {"data": ranks.devices},
        },
        "on": {"device": cluster.device.name, "cluster": cluster.name if cluster.levels else None},
        "fidelity": "profiled" if dense.profiled else "analytical",
        "network": question.network,
        "feasible": True,
        "infeasible": None,
        "step_time_interval_s": [step.step_s / FACTOR, step.step_s * FACTOR],
        "breakdown_s": {
            "compute": parts["dense"], "memory": parts["look_ups"] + parts["updates"], "exposed_communication": exposed,
            "overhead": 0.0, "idle": step.step_s - step.device_s,
        },
        "flops": dense.flops,
        "hbm_bytes": dense.hbm_bytes + _tables_moved(answer, longest),
        "communication_bytes": 2 * pooled + float(load[Load.INPUT, longest]) + dense.gradient_bytes + reduced,
        "memory_bytes": {**plan["memory_bytes"], "peak": answer.memory_bytes[0]},
        "energy_j": None,
        "mfu": None,
        "kernels": dense.kernels,
        "provenance": {
            **dict.fromkeys(("measured", "extrapolated", "simulated", "guessed"), 0.0),
            "interpolated": measured, "analytical": 1.0 - measured,
        },
        "inputs": {**said, "defaults": list(defaults)},
        "throughput": {
            "unit": "samples", "per_s": plan["samples_per_s"], "per_device_s": plan["samples_per_s"] / ranks.devices,
            "model_flops_per_device_s": dense.flops / step.step_s,
        },
        "warnings": warnings,
        "tool": {"version": VERSION, "seconds": answer.seconds},
    }  # fmt: skip


def _tables_moved(answer: TablesAnswer, rank: int) -> float:
    """Bytes that one rank's tables move."""
    problem = answer.problem
    found = 0.0
    for table, placed in zip(problem.tables, answer.plan, strict=True):
        whole = placed.sharding.way in ("table", "column")
        if not placed.places or (rank if whole else rank // problem.ranks.node) in placed.places:
            found += moved_bytes(table, placed.sharding, problem.ranks, problem.kernels)
    return found
