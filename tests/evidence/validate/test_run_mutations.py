"""Published rows with one cell changed for any other that a row may have: each is still understood.

What a row may lack is its model's or its hardware's: stages with more parts than the other model has layers, a length where the
other model reads tokens and the row none, windows where attention is latent.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from meshcast.evidence.validate.runs.planned import row_target
from meshcast.evidence.validate.runs.rows import RunRow, read_run_rows
from meshcast.hardware import cluster_names, device_names
from meshcast.jobs.stated.frameworks import known_names
from meshcast.zoo import models

PUBLISHED = Path(__file__).parents[3] / "data" / "published"
_OTHERS_LACK = re.compile(
    r"a plan that fits: \d+ layers leave parts|seq$|sizes that fit each other: latent attention has neither windows"
)
_PRECISIONS = (
    "", "amp", "bf16", "bf16-mixed", "fp16", "tf32", "fp32", "fp64", "fp8", "fp8-block", "fp8-hybrid", "fp8-rowwise", "mxfp8",
    "nvfp4", "mxfp4", "int8", "int8-aqt", "mixed",
)  # fmt: skip
_RECOMPUTED = (
    "", "none", "full", "full:3-layers", "selective", "selective:core_attn", "block", "offload", "offload:layer_input",
    "policy:", "policy:core_attn+mlp", "policy:minimal_offloaded", "policy:nobody_knows", "policy:save:q+k+v",
)  # fmt: skip
_ATTENTION = ("", "cudnn", "fa3", "flash", "plain", "ring", "sdpa", "splash", "triton", "xformers")
_FRAMEWORKS = ("", "axlearn", "colossal-ai", "gpt-neox", "hugectr", "optimum-habana", "paddle", "torchrec")


@cache
def rows() -> tuple[RunRow, ...]:
    """One row of each device, software and kind of model: language, experts, images, encoders."""
    read = [
        row for file in ("runs-more.csv", "runs-vision.csv") for row in read_run_rows(PUBLISHED / file) if row.scored
    ]
    found = {(row.run.device, row.run.framework, row.run.counts.get("layers", 0) > 0): row for row in read}
    assert len(found) > 8
    return tuple(found.values())


def lacks(row: RunRow, **changes: Any) -> list[str]:
    """What a row lacks with a cell changed, beyond what the other model or device cannot have."""
    target = row_target(replace(row, run=replace(row.run, **changes)))
    return [each for each in target.missing if not _OTHERS_LACK.match(each)]


@pytest.mark.parametrize("device", [*device_names(), *cluster_names()])
def test_any_device(device: str) -> None:
    place = len(device) % len(rows())
    for row in (rows()[place], rows()[place - 1]):
        assert lacks(row, device=device) == []


@pytest.mark.parametrize("framework", [*sorted(known_names()), *_FRAMEWORKS])
def test_any_software(framework: str) -> None:
    for row in rows():
        assert lacks(row, framework=framework) == []


@pytest.mark.parametrize("model", sorted(models()))
def test_any_model(model: str) -> None:
    place = len(model) % len(rows())
    for row in (rows()[place], rows()[place - 1]):
        kept = {name: row.run.counts[name] for name in ("gbs", "seq") if name in row.run.counts}
        assert lacks(row, model=model, counts=kept) == []


@pytest.mark.parametrize("cell", ["precision", "recompute", "attention"])
def test_any_word(cell: str) -> None:
    words = {"precision": _PRECISIONS, "recompute": _RECOMPUTED, "attention": _ATTENTION}[cell]
    for place, row in enumerate(rows()):
        for word in words[place % 2 :: 2]:
            assert lacks(row, **{cell: word}) == [], word
