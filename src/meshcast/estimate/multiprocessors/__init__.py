"""Fidelity `simulated` on GPUs: thread blocks on SMs, event by event."""

from __future__ import annotations

from meshcast.estimate.multiprocessors.estimator import GpuSimulated as GpuSimulated
