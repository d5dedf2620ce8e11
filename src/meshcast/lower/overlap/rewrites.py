"""The rewrites that `--overlap` asks of a lowered program, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from meshcast.lower.frameworks.cached_weights import with_cached_weights
from meshcast.lower.frameworks.channel_sums import with_channel_sums
from meshcast.lower.frameworks.engine_casts import with_engine_casts
from meshcast.lower.frameworks.fsdp2_copies import with_unit_copies
from meshcast.lower.frameworks.leading_copies import with_leading_copies
from meshcast.lower.frameworks.library_norms import with_library_norms
from meshcast.lower.frameworks.local_scales import with_local_scales
from meshcast.lower.frameworks.narrow_attention import with_narrow_attention
from meshcast.lower.frameworks.narrow_gathers import with_narrow_gathers
from meshcast.lower.frameworks.token_copies import with_single_copies
from meshcast.lower.frameworks.turned_images import with_turned_images
from meshcast.lower.frameworks.wide_sums import with_wide_sums
from meshcast.lower.kernel import LoweredProgram, Schedule
from meshcast.lower.overlap.async_tp import with_partial_products
from meshcast.lower.overlap.buckets import with_buckets
from meshcast.lower.overlap.choices import Overlap
from meshcast.lower.overlap.offload import with_offloaded_stacks
from meshcast.lower.overlap.prefetch import with_late_reductions, with_prefetching
from meshcast.lower.value_types import ValueTypes
from meshcast.programs import Role


def rewritten(lowered: LoweredProgram, overlap: Overlap) -> LoweredProgram:
    """The program with the rewrites made: products cut first, then collectives joined, then loops shifted.

    One that finds nothing to do is told in `idle`: whether that is worth a warning depends on who asked, and for how much.
    """
    values = ValueTypes(lowered.tensors)
    workload, idle = lowered.workload, []
    schedule = lowered.schedule
    weights = {
        value
        for value, argument in zip(workload.body.inputs, workload.arguments, strict=False)
        if argument.role in (Role.PARAMETER, Role.OPTIMIZER_STATE)
    }
    # A pass of a microbatch has no optimizer.
    is_pass = all(argument.role is not Role.OPTIMIZER_STATE for argument in workload.arguments)
    mesh = workload.mesh
    splitting = mesh.group(["tensor"]) if "tensor" in mesh.sizes else None
    agreeing = splitting if overlap.replica_scales else None
    rewrites: tuple[tuple[bool, Callable[[Schedule], Schedule], str], ...] = (
        (
            overlap.local_scales or overlap.replica_scales,
            lambda before: with_local_scales(before, values.tensors, lambda group: group == agreeing),
            "local scales change nothing: no number is reduced that only scales what stays where it is",
        ),
        (
            overlap.narrow_gathers,
            lambda before: with_narrow_gathers(before, values, lambda group: group == splitting),
            "narrow-gathers changes nothing: no activations are gathered only to be rounded to one byte",
        ),
        (
            overlap.async_tp,
            lambda before: with_partial_products(before, values, weights),
            "async-tp changes nothing: no product alone has an exchange of activations around it that could be cut",
        ),
        (
            overlap.leading_copies,
            lambda before: with_leading_copies(before, values, lambda group: group == splitting),
            "leading-copies changes nothing: no activations are gathered or scattered along another dimension than the first",
        ),
        (
            overlap.cached_weights,
            lambda before: with_cached_weights(before, values.tensors, weights, is_pass=is_pass),
            "cached-weights changes nothing: of weights alone nothing is made for every microbatch",
        ),
        (
            overlap.engine_casts,
            lambda before: with_engine_casts(before, values),
            "engine-casts changes nothing: nothing is rounded to 8 or 4 bits",
        ),
        (
            overlap.fsdp2,
            lambda before: with_unit_copies(before, values, weights),
            "fsdp2 changes nothing: no weights are gathered, and no gradients reduced into shares",
        ),
        (
            overlap.turned_images,
            lambda before: with_turned_images(before, values),
            "turned-images changes nothing: no convolution has windows of several pixels, of many channels",
        ),
        (
            overlap.library_norms,
            with_library_norms,
            "library-norms changes nothing: nothing is summed up over the pixels of images",
        ),
        (
            overlap.wide_sums,
            lambda before: with_wide_sums(before, values),
            "wide-sums changes nothing: no gradients of half precision are added to fp32 sums",
        ),
        (
            overlap.narrow_attention,
            with_narrow_attention,
            "narrow-attention changes nothing: no fused attention of two bytes is called",
        ),
        (
            overlap.channel_sums,
            with_channel_sums,
            "channel-sums changes nothing: nothing is summed up over the pixels of images",
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
            overlap.late_reductions,
            lambda before: with_late_reductions(before, values),
            "late-reductions changes nothing: no loop reduces what nothing of its turns reads",
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
                idle.append(f"--overlap: {nothing}")
    return replace(lowered, schedule=schedule, tensors=tuple(values.tensors), idle=tuple(idle))
