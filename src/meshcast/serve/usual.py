"""What predictions do where nothing is said: what was asked for is told from what was left open."""

from __future__ import annotations

USUAL = {"fidelity": "auto", "network": "alpha-beta", "lowering": "auto", "clocks": "sustained"}
