"""Latent attention of a run that no name of the zoo stands for: `mla:q_lora=1536,kv_lora=512,qk_nope=128,qk_rope=64,v=128`."""

from __future__ import annotations

import re
from typing import Any

from meshcast.jobs.stated.findings import Findings
from meshcast.jobs.stated.run import StatedRun

LATENT = "deepseek-v3"
"""The decoder of the zoo whose keys and values are latent."""
# Of DeepSeek-V2 and V3 alike (DeepSeek-AI 2024, arXiv 2412.19437, section 4.2): widths of a head, which others took over.
_KEYS, _ROTATED, _VALUES = 128, 64, 128
_FAMILIES = frozenset({"deepseek", "kimi", "moonlight"})
_OLDER = frozenset({"coder", "llm", "moe", "math", "v1"})


def is_latent(run: StatedRun) -> bool:
    """Whether a run says how wide its latent keys and values are."""
    return run.extra.whole("kv_lora") is not None


def latent_settings(run: StatedRun, found: Findings) -> dict[str, Any]:
    """Ranks and widths of latent attention, as a decoder of the zoo takes them; nothing where the run tells of none."""
    rank = run.extra.whole("kv_lora")
    if rank is None:
        return {}
    told = {name: run.extra.whole(name) for name in ("qk_nope", "qk_rope", "v")}
    usual = {"qk_nope": _KEYS, "qk_rope": _ROTATED, "v": _VALUES}
    if lacking := [f"{name}={usual[name]}" for name, value in told.items() if value is None]:
        found.assumes(f"{', '.join(lacking)} of latent attention, as DeepSeek-V3 has them")
    widths = {name: usual[name] if value is None else value for name, value in told.items()}
    settings = {
        "latent_rank": rank, "query_rank": run.extra.whole("q_lora") or 0, "head_dim": widths["qk_nope"],
        "rope_dim": widths["qk_rope"], "value_dim": widths["v"],
    }  # fmt: skip
    if "heads" in run.counts:
        settings["kv_heads"] = run.counts["heads"]
    return settings


def doubts(run: StatedRun, found: Findings) -> None:
    """Notes where a family's attention is latent, and the run, built on general layers, does not say so."""
    parts = set(re.split(r"[-_ .]", run.model))
    if _FAMILIES & parts and not _OLDER & parts and not is_latent(run):
        found.assumes("whole keys and values: no mla:q_lora=...,kv_lora=... is told, as that family has it")
