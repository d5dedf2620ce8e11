"""Inputs, assumptions and provenance: what was asked, what was taken for granted, how far it was checked, and by which tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TypedDict

from meshcast.hardware import Cluster
from meshcast.report.subject import Subject
from meshcast.report.tables import Table, TableCell, column, table

_NOTHING: tuple[Any, ...] = (None, "", {}, [])
MOST_FACTS = 80


class OriginShare(TypedDict):
    """A share of the step time by where it comes from."""

    name: str
    share: float


class ProvenanceSection(TypedDict):
    """The section."""

    origins: list[OriginShare]
    trust: list[list[str]]
    warnings: list[str]
    inputs: list[Table]
    hardware: list[Table]
    tool: Table
    command: str


def provenance_section(subject: Subject) -> ProvenanceSection:
    """The section."""
    prediction = subject.prediction
    return {
        "origins": [
            {"name": name, "share": share}
            for name, share in asdict(prediction.provenance).items()
            if share and prediction.timed is not None
        ],
        "trust": [[name, said] for name, said in (prediction.trust.rows() if prediction.trust is not None else ())],
        "warnings": list(prediction.warnings),
        "inputs": list(_inputs(subject)),
        "hardware": list(_hardware(subject.cluster, prediction.devices)),
        "tool": _tool(subject),
        "command": subject.command,
    }


def _inputs(subject: Subject) -> Iterator[Table]:
    found = subject.prediction.inputs
    if found is None:
        return
    columns = (column("input"), column("value", "", "input"), column("decided by"))
    asked, defaults = [], []
    for name, value in found.values.items():
        if name == "model" or value in _NOTHING:
            continue
        row: list[TableCell] = [name, _text(value)]
        if name in found.defaults:
            defaults.append([*row, "default"])
        else:
            asked.append([*row, "the stack" if name in found.by_stack else "asked"])
    yield table("inputs", "What was asked", columns, asked)
    yield table("defaults", "What nobody asked for: defaults", columns, defaults)
    if model := found.values.get("model"):
        rows = ([name, _text(value)] for name, value in model.items() if value not in _NOTHING and value is not False)
        yield table("model", "The model", columns[:2], rows)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return json.dumps(value, default=str)


def _hardware(cluster: Cluster, devices: int) -> Iterator[Table]:
    columns = (column("number"), column("value", "", "fact"), column("source"))
    parts = (cluster.device, cluster) if devices > 1 else (cluster.device,)
    for each in parts:
        rows = [
            [name, fact.text, _source(each.sources.get(fact.source), fact.source)] for name, fact in each.facts.items()
        ]
        if rows:
            yield table(f"hardware-{each.name}", f"{each.name}: {each.title}", columns, rows, most=MOST_FACTS)


def _source(found: Any, key: str) -> str:
    return key if found is None else f"{found.title}" + (f" ({found.url})" if found.url else "")


def _tool(subject: Subject) -> Table:
    prediction = subject.prediction
    rows: list[list[TableCell]] = [
        ["meshcast", prediction.version],
        ["answered in", f"{prediction.seconds:.2f} s"],
        ["program", prediction.name],
        ["SHA-256 of the program", prediction.sha256],
        ["fidelity", prediction.fidelity],
        ["network model", prediction.network],
        ["kernels", prediction.lowering],
    ]
    if prediction.compiler is not None:
        rows.append(["compiled by", prediction.compiler.release])
    return table("tool", "Tool and program", (column("what"), column("value", "", "tool")), rows)
