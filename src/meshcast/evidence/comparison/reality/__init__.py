"""Predictions against traces of real runs: kernels put side by side, and where the two part."""

from meshcast.evidence.comparison.reality.asking import compare_measured as compare_measured
from meshcast.evidence.comparison.reality.reality import Reality as Reality
