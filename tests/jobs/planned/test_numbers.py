"""A step under a plan, run on eight virtual devices, gives the numbers of one device."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
LLAMA: tuple[str, dict[str, Any]] = ("llama3-tiny", {"layers": 1})
WINDOW: tuple[str, dict[str, Any]] = ("llama3-tiny", {"layers": 1, "window": 5, "attention_cap": 3.0})
GPT: tuple[str, dict[str, Any]] = ("gpt2-tiny", {"vocab": 256, "layers": 1})
# Eight devices divide neither its width nor its vocabulary.
ODD: tuple[str, dict[str, Any]] = ("gpt2-tiny", {"vocab": 255, "layers": 1, "dim": 36})
# Room for every token, and no loss that depends on who else is in the microbatch.
MIXTRAL: tuple[str, dict[str, Any]] = (
    "mixtral-tiny",
    {"layers": 1, "capacity_factor": 8.0, "group": 32, "balance": 0.0},
)
CASES = [
    (*LLAMA, "dp=2,fsdp=2,tp=2,sp=1,mbs=2"),
    (*LLAMA, "cp=4,attention=ring,mbs=8"),
    (*LLAMA, "cp=4,mbs=8"),
    (*GPT, "fsdp=4,cp=2,attention=ring,mbs=2,remat=full"),
    (*LLAMA, "tp=2,cp=4,attention=flash-ring,mbs=8"),
    (*LLAMA, "tp=2,cp=4,attention=flash-parts,mbs=8"),
    (*WINDOW, "cp=2,attention=flash-all-gather,mbs=8"),
    (*LLAMA, "dp=2,cp=4,attention=flash,mbs=4,remat=full"),
    (*GPT, "dp=4,zero=1,mbs=1,remat=selective"),
    (*GPT, "dp=4,zero=2,mbs=1"),
    (*ODD, "dp=8,zero=1,mbs=1"),
    (*MIXTRAL, "ep=4,mbs=2"),
]
# A bias of keys changes no softmax: its gradient is rounding alone, and so is Adam's step.
LOSS_ALONE = [(*GPT, "dp=2,cp=2,attention=flash,mbs=4")]


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    """What a child with eight devices finds, by plan; the number of devices is fixed when JAX starts."""
    asked = [json.dumps([model, settings, f"{plan},precision=tf32"]) for model, settings, plan in (*CASES, *LOSS_ALONE)]
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.jobs.planned.numbers", *asked],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {answer["plan"]: answer for answer in answers}


@pytest.mark.parametrize("plan", [plan for _, _, plan in CASES])
def test_the_numbers_stay(plan: str, found: dict[str, dict[str, Any]]) -> None:
    answer = found[f"{plan},precision=tf32"]
    assert math.isclose(answer["loss"], answer["alone"], rel_tol=1e-5)
    # A step moves a parameter by up to 3e-4; rounding decides where a gradient is almost zero.
    assert answer["apart"] < 1e-4


@pytest.mark.parametrize("plan", [plan for _, _, plan in LOSS_ALONE])
def test_the_loss_stays(plan: str, found: dict[str, dict[str, Any]]) -> None:
    answer = found[f"{plan},precision=tf32"]
    assert math.isclose(answer["loss"], answer["alone"], rel_tol=1e-5)
