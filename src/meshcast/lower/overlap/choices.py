"""`Overlap`: what is asked of `--overlap`; one table names every choice, reads and writes it, and says what it does.

A module without weight, so that the command line's help can be made of the table (`lower.overlap.rewrites` makes the rewrites).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshcast.base import Dimension, InputError, UsageError, nearest, parse_quantity

# What is said of `paired_passes` where a step has no passes that could hide anything for each other.
NOTHING_PAIRED = (
    "--overlap: paired-passes changes nothing: no interleaved stage (pp and vp of a plan) waits for exchanges of experts that "
    "another microbatch's pass could hide"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Which rewrites are made.

    Attributes:
        bucket_bytes: Collectives of one kind and group are joined up to so many bytes; 0 joins none.
        prefetch: Whether loops gather what their next turn needs, and reduce what the last one left, beside this one.
        late_reductions: Whether loops reduce what the last turn left beside this one, and gather as the program says: gradients
            of layers that nothing but the optimizer waits for.
        gathers: All-gathers whose results may wait for their first use at once (the scheduler's, not a rewrite);
            0 for any number.
        async_tp: Whether products with an all-gather before or a reduce-scatter behind them are cut into parts that run
            beside the exchange.
        one_copy: Whether a token is sent once to each host that has any of its experts, not once for each expert.
        offload: Whether what a loop saves for a later one lies in the host's memory in between, moved beside compute.
        fsdp2: Whether gathered weights are copied out of a buffer and gradients into one, in fp32, as PyTorch's FSDP2 does.
        leading_copies: Whether activations are gathered and scattered along their first dimension alone, with copies around it.
        turned_images: Whether images lie channels first, which cuDNN turns around convolutions on tensor cores.
        channel_sums: Whether images lie channels first and batch norms have a block for each channel.
        cached_weights: Whether what is made of weights alone, in fp8, is made once a step and not for every microbatch.
        local_scales: Whether narrow tensors are scaled by what a device holds of them.
        replica_scales: The same, but devices that split a layer's products agree on a scale.
        narrow_gathers: Whether activations are rounded before they are gathered among devices that split a layer.
        narrow_attention: Whether fused attention multiplies in 8 bits.
        library_norms: Whether batch norms are a library's kernels: sums of what is read, and no more arithmetic.
        engine_casts: Whether values in 8 and 4 bits are made by kernels of their own, as Transformer Engine does.
        wide_sums: Whether gradients of half precision are summed up, widened and added to fp32 sums by kernels of their own.
        paired_passes: Whether interleaved stages run a forward pass beside another microbatch's backward pass, exchanges of
            experts hidden by either (`jobs.pipeline.paired`, not a rewrite).
    """

    bucket_bytes: int = 0
    prefetch: bool = False
    late_reductions: bool = False
    gathers: int = 0
    async_tp: bool = False
    one_copy: bool = False
    offload: bool = False
    fsdp2: bool = False
    leading_copies: bool = False
    turned_images: bool = False
    channel_sums: bool = False
    cached_weights: bool = False
    local_scales: bool = False
    replica_scales: bool = False
    narrow_gathers: bool = False
    narrow_attention: bool = False
    library_norms: bool = False
    engine_casts: bool = False
    wide_sums: bool = False
    paired_passes: bool = False

    @property
    def any(self) -> bool:
        """Whether anything is asked for."""
        return self != Overlap()

    @classmethod
    def parse(cls, text: str) -> Overlap:
        """From the command line's `buckets=25MiB,prefetch,gathers=2,async-tp` and further ones of `OVERLAP_CHOICES`.

        Raises:
            UsageError: A part is not one of these, or is given twice.
        """
        found: dict[str, int] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = part.partition("=")
            if name not in _BY_NAME:
                raise UsageError(f"no overlap {name!r}", where="--overlap", fix=nearest(name, _BY_NAME))
            choice = _BY_NAME[name]
            if choice.field in found:
                raise UsageError(f"{name!r} is given twice", where="--overlap", fix="give it once")
            found[choice.field] = choice.read(name, value)
        return cls(**found)  # type: ignore[arg-type]  # every reader gives what its field holds

    def __str__(self) -> str:
        chosen = ((choice, getattr(self, choice.field)) for choice in OVERLAP_CHOICES)
        return ",".join(choice.name + choice.value.format(value) for choice, value in chosen if value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapChoice:
    """One of the rewrites as it is asked for.

    Attributes:
        name: On the command line.
        field: Of `Overlap`.
        read: From the name and what stands behind its `=`.
        value: What is written behind the name, with the field's value.
        example: What help shows behind the name.
        help: What it does, in a few words.
    """

    name: str
    field: str
    help: str
    read: Callable[[str, str], int]
    value: str = ""
    example: str = ""


def _size(name: str, text: str) -> int:
    try:
        size = parse_quantity(text, Dimension.BYTES)
    except InputError as error:
        raise UsageError(f"{name}: {error.message}", where="--overlap", fix=f"e.g. {name}=25MiB") from error
    if size < 1:
        raise UsageError(f"{name} of {text!r}", where="--overlap", fix=f"a size above 0, e.g. {name}=25MiB")
    return int(size)


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UsageError(f"{name}={text!r} is not a positive integer", where="--overlap", fix=f"e.g. {name}=2")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text not in ("", "0", "1"):
        raise UsageError(f"{name}={text!r}: it is on or off", where="--overlap", fix=f"write {name}, or {name}=0")
    return text != "0"


OVERLAP_CHOICES = (
    OverlapChoice(
        name="buckets", field="bucket_bytes", read=_size, value="={}B", example="=25MiB", help="small collectives together"
    ),
    OverlapChoice(name="prefetch", field="prefetch", read=_flag, help="a loop gathers the next turn's weights"),
    OverlapChoice(
        name="late-reductions", field="late_reductions", read=_flag, help="a loop reduces the last turn's gradients",
    ),
    OverlapChoice(name="gathers", field="gathers", read=_count, value="={}", example="=N", help="at most N waiting for use"),
    OverlapChoice(name="async-tp", field="async_tp", read=_flag, help="products in parts beside their exchange"),
    OverlapChoice(name="one-copy", field="one_copy", read=_flag, help="a token to each host once"),
    OverlapChoice(name="offload", field="offload", read=_flag, help="what layers save waits in the host's memory"),
    OverlapChoice(name="fsdp2", field="fsdp2", read=_flag, help="weights and gradients copied through buffers, as PyTorch does"),
    OverlapChoice(
        name="leading-copies", field="leading_copies", read=_flag,
        help="activations copied around tensor-parallel exchanges, as PyTorch does",
    ),
    OverlapChoice(name="turned-images", field="turned_images", read=_flag, help="images channels first, turned by cuDNN"),
    OverlapChoice(name="channel-sums", field="channel_sums", read=_flag, help="batch norms with a block a channel"),
    OverlapChoice(name="cached-weights", field="cached_weights", read=_flag, help="fp8 weights rounded once a step"),
    OverlapChoice(name="local-scales", field="local_scales", read=_flag, help="fp8 scales by each device's own values"),
    OverlapChoice(
        name="replica-scales", field="replica_scales", read=_flag,
        help="the same, but one among devices that split a layer",
    ),
    OverlapChoice(name="narrow-gathers", field="narrow_gathers", read=_flag, help="activations gathered in fp8"),
    OverlapChoice(name="narrow-attention", field="narrow_attention", read=_flag, help="fused attention in fp8"),
    OverlapChoice(name="library-norms", field="library_norms", read=_flag, help="batch norms by a library's kernels"),
    OverlapChoice(
        name="engine-casts", field="engine_casts", read=_flag, help="fp8 and fp4 values rounded by kernels of their own",
    ),
    OverlapChoice(
        name="wide-sums", field="wide_sums", read=_flag, help="gradients widened and added up by kernels of their own",
    ),
    OverlapChoice(
        name="paired-passes", field="paired_passes", read=_flag,
        help="exchanges of experts behind another microbatch's pass",
    ),
)  # fmt: skip
_BY_NAME = {choice.name: choice for choice in OVERLAP_CHOICES}
