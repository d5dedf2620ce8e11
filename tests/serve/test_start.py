"""What the server's own process loads: workers answer, so that it stays small beside them."""

from __future__ import annotations

import json
import subprocess
import sys

from meshcast.base.child import child_environment

# Compilers, and the packages that predict: 100 MB, and a second of every start.
OF_WORKERS = {"jax", "jaxlib", "meshcast.jobs", "meshcast.lower", "meshcast.estimate", "meshcast.evidence"}


def test_the_server_loads_nothing_that_predicts() -> None:
    script = "import json, sys; import meshcast.serve.app; print(json.dumps(sorted(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=child_environment())
    assert told.returncode == 0, told.stderr
    assert OF_WORKERS.isdisjoint(json.loads(told.stdout))
