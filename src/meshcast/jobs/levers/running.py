"""Other ways to run the same program: its schedule, what overlaps, the software stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from meshcast.jobs.levers.candidate import Candidate, Question
from meshcast.jobs.planned.stacked import with_stack
from meshcast.lower import Overlap
from meshcast.options import load_stack, stack_names

_BUCKET = 25 * 2**20  # bytes: what PyTorch's DistributedDataParallel joins, unless told otherwise
_SHARDED = ("fsdp", "data", "expert", "context")


def of_running(question: Question) -> Iterator[Candidate]:
    """Flags that leave the program as it is."""
    options, exposed = question.options, question.share("exposed_communication")
    if exposed and options.run.scheduler in ("serial", "program"):
        yield Candidate(
            change="collectives as early as their data allows",
            flag="--scheduler latency-hiding",
            options=question.changed(scheduler="latency-hiding"),
            bound=exposed,
        )
    if exposed and options.run.channels:
        yield Candidate(
            change="a channel for each group",
            flag="--channels 0",
            options=question.changed(channels=0),
            bound=exposed / 2,
        )
    yield from _overlaps(question)
    yield from _compiled(question)


def _overlaps(question: Question) -> Iterator[Candidate]:
    now = question.options.lowering.rewrites
    gathers, sums = question.sends("all_gather", "reduce_scatter"), question.sends("all_reduce", "reduce_scatter")
    staged = question.prediction.pipeline is not None
    for change, other, bound in (
        ("gather the next layer's weights beside this one", replace(now, prefetch=True), gathers * question.exposed(*_SHARDED)),
        ("products in parts beside their exchange", replace(now, async_tp=True), gathers * question.exposed("tensor")),
        (
            "small collectives together",
            replace(now, bucket_bytes=now.bucket_bytes or _BUCKET),
            sums * question.exposed("data", "fsdp") / 2,
        ),
        (
            "a token to each host once",
            replace(now, one_copy=True),
            question.sends("all_to_all") * question.exposed("expert", "fsdp") / 2,
        ),
        (
            "exchanges of experts behind another microbatch's pass",
            replace(now, paired_passes=True),
            question.sends("all_to_all") * question.share("exposed_communication") if staged else 0.0,
        ),
    ):  # fmt: skip
        if other != now and bound:
            yield _overlapping(question, change, other, bound)


def _overlapping(question: Question, change: str, overlap: Overlap, bound: float) -> Candidate:
    text = str(overlap)
    return Candidate(
        change=change, flag=f"--overlap {text}", options=question.changed(overlap=text), bound=bound, kind=text
    )


def _compiled(question: Question) -> Iterator[Candidate]:
    """Stacks of the same framework that compile, where the one that runs launches op by op."""
    options, brought = question.options, question.options.brought
    if brought is None or options.lowering.fusion != "eager":
        return
    bare = question.without_fields(brought.fields)
    for name in stack_names():
        other = load_stack(name)
        if name != brought.stack and other.framework == brought.framework and other.fusion == "compiler":
            flag = f"--stack {name}"
            if brought.in_plan and (plan := options.program.plan) is not None:
                flag = f"--plan {replace(plan.value, stack=name)}"
            yield Candidate(
                change=f"kernels fused by a compiler ({name})",
                flag=flag,
                options=with_stack(replace(bare, brought=None), name, but=options.asked),
                bound=question.share("memory") / 2 + question.share("overhead") + question.share("idle"),
            )
