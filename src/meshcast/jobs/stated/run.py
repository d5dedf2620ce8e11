"""`StatedRun`: a training run in the words of whoever ran it: hardware, a model's shape, degrees, precision, software.

It is what a published run's run (`evidence.validate.runs`) and a job's file (`jobs.stated.file`) have in common; `target.py`
makes of it what can be predicted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from meshcast.jobs.stated.extras import Extras

SIZES = (
    "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "experts", "experts_per_token", "moe_ffn",
    "shared_experts", "seq",
)  # fmt: skip
"""A model's sizes, and the tokens of a sequence."""
BATCH = "gbs"
COUNTS = (*SIZES, BATCH)
DEGREES = ("dp", "fsdp", "tp", "sp", "pp", "vp", "ep", "cp")
SHAPE_FLAGS = ("gated_ffn", "tied_embeddings")
SOFTWARE_FLAGS = ("compiled", "async_tp", "fp8_allgather")
FLAGS = (*SHAPE_FLAGS, *SOFTWARE_FLAGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRun:
    """One run as somebody tells it; what is not told is None, empty, or not in a mapping.

    Attributes:
        device: A device of the catalogue.
        on: A cluster of the catalogue or a file of one, which the other words about hardware then leave as it is.
        device_note: A power limit (`500 W`) or a memory variant (`96 GB`).
        gbit_per_device: Gbit/s of a device between hosts.
        counts: The model's sizes, `seq` tokens of a sequence and `gbs` sequences (or samples) of a step.
        degrees: Parallel degrees: `dp x fsdp x tp x pp x cp` devices, `ep` inside `dp` and `fsdp`; `sp` is 0 or 1.
        mbs: Sequences of a microbatch on one rank of data parallelism; below one where ranks share a sequence.
        zero: 0: nothing shared out; 1: the optimizer's state; 2: weights stay gathered; 3: everything.
        recompute: `none`, `full`, `full:N-layers`, `selective`, `policy:NAME`, `policy:save:a+b`, `offload:a+b`.
        framework: The software by its name; `stack` is a software stack by name or file, which goes before it.
        overlap: Rewrites that hide communication in place of the stack's own.
        flags: Yes or no of `FLAGS`, where told.
        extra: What has no word of its own.
    """

    device: str
    devices: int
    model: str
    on: str = ""
    device_note: str = ""
    devices_per_host: int | None = None
    scale_up: str = ""
    scale_out: str = ""
    gbit_per_device: float | None = None
    slices: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    degrees: Mapping[str, int] = field(default_factory=dict)
    mbs: float | None = None
    precision: str = ""
    zero: int | None = None
    recompute: str = ""
    attention: str = ""
    framework: str = ""
    framework_version: str = ""
    stack: str = ""
    overlap: str | None = None
    flags: Mapping[str, bool] = field(default_factory=dict)
    extra: Extras = field(default_factory=Extras)

    def degree(self, name: str) -> int:
        """A parallel degree; 1 where it is not used or not told."""
        return max(self.degrees.get(name, 1), 1)

    @property
    def whole_experts(self) -> bool:
        """Whether tensor ranks share out experts, each whole on one of them, and not every expert's width.

        Told (`etp=1`: Megatron's `expert_tensor_parallel_size`), or because experts are shared out over more ranks than share
        the batch, which is possible over tensor ranks alone. Megatron then has its groups of `ep` reach over tensor ranks first,
        and wants positions split over them.
        """
        tensor, experts = self.degree("tp"), self.degree("ep")
        if tensor == 1 or experts % tensor or self.degrees.get("sp", 1) == 0:
            return False
        ranks = self.devices // (tensor * self.degree("pp") * self.degree("cp"))
        return self.extra.whole("etp") == 1 or experts > ranks

    @property
    def software_year(self) -> int | None:
        """The year that the software's version names."""
        found = re.search(r"\b(20\d\d)\b", self.framework_version)
        return int(found[1]) if found else None
