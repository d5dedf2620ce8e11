"""`PlanSpace`: every plan that shares a model out over so many devices, as values of `Plan` that exist.

Degrees are factorisations of the number of devices that divide the model: `tp` its heads and key heads, `ep` its experts,
`cp` its sequences, `pp` x `vp` its layers, `dp` x `fsdp` x `ep` x `mbs` its batch. What is not chosen is what training runs use:

- `tp` within reach of attention heads, with `sp` where positions divide;
- `cp` down to `SHORTEST` positions a device;
- `fsdp` without stages, in all splits with `dp` (hybrid sharding); with stages replicas are `dp`, and share their optimizer
  (`zero=1`);
- microbatches of powers of two up to `LARGEST_MBS` sequences;
- `vp` of all divisors of a stage's layers where microbatches make equal groups of the stages or more, up to `LARGEST_VP`;
- recomputation `none`, `selective` and `full`; the schedule that goes with `vp`; bf16; no offload.

Of `sp`, `zero` and recomputation only what the model's training step has (`ModelShape.decided`).

Any key takes a list instead: `PlanSpace(..., choices={"tp": (4, 8), "schedule": ("1f1b", "zb-h1")})`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from meshcast.base import MeshcastError, UsageError, nearest
from meshcast.explore.shape import ModelShape
from meshcast.jobs import interleaves
from meshcast.zoo import Plan

SHORTEST = 2048  # positions of a sequence on each device that splits it
LARGEST_MBS = 16
LARGEST_VP = 12
DEGREES = ("pp", "tp", "cp", "ep", "fsdp", "dp")
FSDP_IN_STAGES = "fsdp-in-stages"
# Keys of a plan that each batch, cut and shape may have in several ways, with their usual values.
WORDS: dict[str, tuple[Any, ...]] = {
    "remat": ("none", "selective", "full"),
    "precision": ("bf16",),
    "attention": (None,),
    "offload": ("none",),
    "gradients": ("fp32",),
    "stack": (None,),
}
_KNOWN = {each.name for each in fields(Plan)} - {"microbatches", "layers_per_stage"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpace:
    """The plans of a model on some devices with some batch.

    Attributes:
        shape: The model.
        devices: How many.
        batch: The global batch, in sequences.
        choices: Values of single keys, in place of the usual ones.
    """

    shape: ModelShape
    devices: int
    batch: int
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.choices:
            if key not in _KNOWN and key != FSDP_IN_STAGES:
                raise UsageError(
                    f"a plan has no {key!r} to search over", where="plan", fix=nearest(key, sorted(_KNOWN))
                )

    def __iter__(self) -> Iterator[Plan]:
        """The plans, in an order that depends on nothing else."""
        for degrees in self.degrees():
            yield from self._of_degrees(degrees)

    def degrees(self) -> Iterator[dict[str, int]]:
        """Factorisations of the devices that divide the model, and a batch of microbatches of one sequence."""
        shape = self.shape
        heads = math.gcd(shape.heads, shape.kv_heads) if shape.heads else 1
        for pp in self._factors("pp", self.devices, shape.layers // shape.period if shape.staged else 1):
            if shape.layers % (pp * shape.period) and pp > 1:
                continue
            for tp in self._factors("tp", self.devices // pp, heads):
                for cp in self._factors("cp", self.devices // (pp * tp), shape.seq if shape.heads else 1):
                    if not self._splits_sequences(cp):
                        continue
                    for ep in self._factors("ep", self.devices // (pp * tp * cp), shape.experts or 1):
                        left = self.devices // (pp * tp * cp * ep)
                        if self.batch % (ep * left):
                            continue
                        for fsdp in self._factors("fsdp", left, left):
                            if self._shards(pp, fsdp) and left // fsdp in self._allowed("dp", left // fsdp):
                                yield {"pp": pp, "tp": tp, "cp": cp, "ep": ep, "fsdp": fsdp, "dp": left // fsdp}

    def _shards(self, pp: int, fsdp: int) -> bool:
        if pp == 1 or fsdp == 1 or "fsdp" in self.choices:
            return True
        return bool(self.choices.get(FSDP_IN_STAGES, (False,))[0])

    def _splits_sequences(self, cp: int) -> bool:
        if cp == 1:
            return True
        seq = self.shape.seq
        if not self.shape.heads or seq % (2 * cp):
            return False
        return "cp" in self.choices or seq // cp >= SHORTEST

    def _factors(self, key: str, count: int, split: int) -> list[int]:
        """Divisors of a count of devices that the key may have, which divide what it splits, too."""
        return [n for n in divisors(max(split, 1)) if count % n == 0 and n in self._allowed(key, n)]

    def _allowed(self, key: str, value: int) -> tuple[Any, ...]:
        return self.choices.get(key, (value,))

    def _of_degrees(self, degrees: dict[str, int]) -> Iterator[Plan]:
        """The plans with some degrees: microbatches, the cut, and everything that is a word."""
        shards = degrees["dp"] * degrees["fsdp"] * degrees["ep"]
        for mbs in self.choices.get("mbs", powers(LARGEST_MBS)):
            if self.batch % (mbs * shards):
                continue
            microbatches = self.batch // (mbs * shards)
            for cut in self.cuts(degrees["pp"], microbatches):
                for more in self._ways(degrees):
                    plan = _plan({**degrees, "mbs": mbs, **cut, **more})
                    if plan is not None:
                        yield plan

    def cuts(self, pp: int, microbatches: int) -> Iterator[dict[str, Any]]:
        """`vp` and the schedule, for so many stages and microbatches."""
        if pp == 1:
            if 1 in self._allowed("vp", 1):
                yield {}
            return
        layers = self.shape.layers // pp
        schedules = self.choices.get("schedule", ("1f1b", "interleaved"))
        for vp in divisors(layers // self.shape.period):
            if vp not in self.choices.get("vp", (vp if vp <= LARGEST_VP else None,)):
                continue
            for schedule in schedules:
                if (schedule == "interleaved") != (vp > 1) or (vp > 1 and not interleaves(pp, microbatches)):
                    continue
                # The usual one is not written.
                yield {"vp": vp, "schedule": None if schedule in ("1f1b", "interleaved") else schedule}

    def _ways(self, degrees: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Everything else: sequence parallelism, sharing of the optimizer, and words."""
        seq = self.shape.seq
        split = degrees["tp"] > 1 and "sequence_parallel" in self.shape.decided
        divides = split and seq > 0 and seq % (degrees["cp"] * degrees["tp"]) == 0
        of_sp = [bool(sp) for sp in self.choices.get("sp", (divides,)) if not sp or divides]
        # Replicas that keep all of the optimizer's state reduce inside the backward pass; without stages both ways are usual.
        shares = "zero" in self.shape.decided
        usual = (0,) if degrees["dp"] == 1 or not shares else (1,) if degrees["pp"] > 1 else (0, 1)
        found: list[dict[str, Any]] = [
            {"sp": sp, "zero": zero} for sp in of_sp for zero in self.choices.get("zero", usual)
        ]
        for key, usual_words in WORDS.items():
            values = usual_words if key != "remat" or key in self.shape.decided else ("none",)
            found = [{**each, key: value} for each in found for value in self.choices.get(key, values)]
        yield from found


def _plan(given: Mapping[str, Any]) -> Plan | None:
    """The plan, where its parts go together."""
    try:
        return Plan(**given)
    except UsageError:
        raise
    except MeshcastError:
        return None


@functools.lru_cache(maxsize=1024)
def divisors(count: int) -> tuple[int, ...]:
    """Numbers that divide a count, the smallest first."""
    low = [n for n in range(1, math.isqrt(count) + 1) if count % n == 0]
    return (*low, *(count // n for n in reversed(low) if n * n != count))


def powers(largest: int) -> tuple[int, ...]:
    """Powers of two up to a number."""
    return tuple(2**n for n in range(largest.bit_length()))
