"""`Overlap`: rewrites of a lowered program that hide communication behind compute, as training frameworks do them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from meshcast.capture.program import Role
from meshcast.errors import InputError, UsageError, nearest
from meshcast.lower.async_tp import with_partial_products
from meshcast.lower.buckets import with_buckets
from meshcast.lower.cached_weights import with_cached_weights
from meshcast.lower.kernel import LoweredProgram, Schedule
from meshcast.lower.offload import with_offloaded_stacks
from meshcast.lower.prefetch import with_prefetching
from meshcast.lower.rewriting import Values
from meshcast.lower.single_copies import with_single_copies
from meshcast.lower.unit_copies import with_unit_copies
from meshcast.units import Dimension, parse

NAMES = (
    "buckets",
    "prefetch",
    "gathers",
    "async-tp",
    "one-copy",
    "offload",
    "fsdp2",
    "cached-weights",
    "paired-passes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Which rewrites are made.

    Attributes:
        bucket_bytes: Collectives of one kind and group are joined up to so many bytes; 0 joins none.
        prefetch: Whether loops gather what their next turn needs, and reduce what the last one left, beside this one.
        gathers: All-gathers whose results may wait for their first use at once (the scheduler's, not a rewrite);
            0 for any number.
        async_tp: Whether products with an all-gather before or a reduce-scatter behind them are cut into parts that run
            beside the exchange.
        one_copy: Whether a token is sent once to each host that has any of its experts, not once for each expert.
        fsdp2: Whether gathered weights are copied out of a buffer and gradients into one, in fp32, as PyTorch's FSDP2 does.
        cached_weights: Whether what is made of weights alone, in fp8, is made once a step and not for every microbatch.
        paired_passes: Whether interleaved stages run a forward pass beside another microbatch's backward pass, exchanges of
            experts hidden by either (`pipelined.paired`, not a rewrite).
        offload: Whether what a loop saves for a later one lies in the host's memory in between, moved beside compute.
    """

    bucket_bytes: int = 0
    prefetch: bool = False
    gathers: int = 0
    async_tp: bool = False
    one_copy: bool = False
    offload: bool = False
    fsdp2: bool = False
    cached_weights: bool = False
    paired_passes: bool = False

    @property
    def any(self) -> bool:
        """Whether anything is asked for."""
        return self != Overlap()

    @classmethod
    def parse(cls, text: str) -> Overlap:
        """From the command line's `buckets=25MiB,prefetch,gathers=2,async-tp` and further ones of `NAMES`.

        Raises:
            UsageError: A part is not one of these, or is given twice.
        """
        found: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = part.partition("=")
            if name not in NAMES:
                raise UsageError(f"no overlap {name!r}", where="--overlap", fix=nearest(name, NAMES))
            if name in found:
                raise UsageError(f"{name!r} is given twice", where="--overlap", fix="give it once")
            found[name] = value
        return cls(
            bucket_bytes=_size(found["buckets"]) if "buckets" in found else 0,
            prefetch=_flag("prefetch", found.get("prefetch")),
            gathers=_count(found["gathers"]) if "gathers" in found else 0,
            async_tp=_flag("async-tp", found.get("async-tp")),
            one_copy=_flag("one-copy", found.get("one-copy")),
            offload=_flag("offload", found.get("offload")),
            fsdp2=_flag("fsdp2", found.get("fsdp2")),
            cached_weights=_flag("cached-weights", found.get("cached-weights")),
            paired_passes=_flag("paired-passes", found.get("paired-passes")),
        )

    def __str__(self) -> str:
        parts = [f"buckets={self.bucket_bytes}B"] if self.bucket_bytes else []
        parts += ["prefetch"] if self.prefetch else []
        parts += [f"gathers={self.gathers}"] if self.gathers else []
        parts += ["async-tp"] if self.async_tp else []
        parts += ["one-copy"] if self.one_copy else []
        parts += ["offload"] if self.offload else []
        parts += ["fsdp2"] if self.fsdp2 else []
        parts += ["cached-weights"] if self.cached_weights else []
        return ",".join([*parts, *(["paired-passes"] if self.paired_passes else [])])


def _size(text: str) -> int:
    try:
        size = parse(text, Dimension.BYTES)
    except InputError as error:
        raise UsageError(f"buckets: {error.message}", where="--overlap", fix="e.g. buckets=25MiB") from error
    if size < 1:
        raise UsageError(f"buckets of {text!r}", where="--overlap", fix="a size above 0, e.g. buckets=25MiB")
    return int(size)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UsageError(f"gathers={text!r} is not a positive integer", where="--overlap", fix="e.g. gathers=2")
    return int(text)


def _flag(name: str, text: str | None) -> bool:
    if text not in (None, "", "0", "1"):
        raise UsageError(f"{name}={text!r}: it is on or off", where="--overlap", fix=f"write {name}, or {name}=0")
    return text in ("", "1")


def overlapped(lowered: LoweredProgram, overlap: Overlap) -> LoweredProgram:
    """The program with the rewrites made: products cut first, then collectives joined, then loops shifted.

    One that finds nothing to do is told among the workload's warnings.
    """
    if not overlap.any:
        return lowered
    values = Values(lowered.tensors)
    workload, warnings = lowered.workload, []
    schedule = lowered.schedule
    weights = {
        value
        for value, argument in zip(workload.body.inputs, workload.arguments, strict=False)
        if argument.role in (Role.PARAMETER, Role.OPTIMIZER_STATE)
    }
    # A pass of a microbatch has no optimizer.
    is_pass = all(argument.role is not Role.OPTIMIZER_STATE for argument in workload.arguments)
    rewrites: tuple[tuple[bool, Callable[[Schedule], Schedule], str], ...] = (
        (
            overlap.async_tp,
            lambda before: with_partial_products(before, values, weights),
            "async-tp changes nothing: no product alone has an exchange of activations around it that could be cut",
        ),
        (
            overlap.cached_weights,
            lambda before: with_cached_weights(before, values.tensors, weights, is_pass=is_pass),
            "cached-weights changes nothing: of weights alone nothing is made for every microbatch",
        ),
        (
            overlap.fsdp2,
            lambda before: with_unit_copies(before, values, weights),
            "fsdp2 changes nothing: no weights are gathered, and no gradients reduced into shares",
        ),
        (
            overlap.one_copy,
            with_single_copies,
            "one-copy changes nothing: no token is sent to several experts",
        ),
        (
            overlap.bucket_bytes > 0,
            lambda before: with_buckets(before, overlap.bucket_bytes),
            "buckets change nothing: no two collectives of one kind, group and type fit into one",
        ),
        (
            overlap.offload,
            lambda before: with_offloaded_stacks(before, values),
            "offload changes nothing: no loop fills arrays, a slot in each turn, for a later loop to read",
        ),
        (
            overlap.prefetch,
            lambda before: with_prefetching(before, values),
            "prefetch changes nothing: no loop gathers what its counter alone decides, or reduces what it only stores",
        ),
    )
    for asked, rewrite, nothing in rewrites:
        if asked:
            before, schedule = schedule, rewrite(schedule)
            if schedule == before:
                warnings.append(f"--overlap: {nothing}")
    return replace(
        lowered,
        schedule=schedule,
        tensors=tuple(values.tensors),
        workload=replace(workload, warnings=(*workload.warnings, *warnings)),
    )
