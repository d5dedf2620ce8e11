"""Stages: later."""

from __future__ import annotations

from collections.abc import Mapping

from meshcast.models import Builder
from meshcast.pipelined import Pipeline
from meshcast.plans.plan import Plan


def build_pipeline(builder: Builder, plan: Plan, settings: Mapping[str, str], platform: str) -> Pipeline:
    """Not yet."""
    raise NotImplementedError
