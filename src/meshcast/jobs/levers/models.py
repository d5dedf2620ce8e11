"""Other settings of a model without a plan: attention, recomputation, types, the batch, and its mesh."""

from __future__ import annotations

from collections.abc import Iterator

from meshcast.jobs.levers.candidate import Candidate, Question
from meshcast.jobs.planned.settings import MARKS
from meshcast.zoo import MARKED

_LESS = ("none", "autodiff", "attention", "selective")  # than everything, in the order in which they are tried
_NOTHING = ("none", "autodiff")  # what recomputes nothing


def of_model(question: Question) -> Iterator[Candidate]:
    """Settings and meshes; nothing where the target is no model, or a plan decides."""
    asked = question.asked
    if asked is None or asked.plan is not None:
        return
    now, device = asked.values(), question.cluster.device
    for change, name, value, bound in (
        ("fused attention", "attention", "flash", _attending(question)),
        ("products in fp8", "products", "fp8", in_fp8(question) if "f8" in device.matrix_flops else 0.0),
        (
            "activations in bf16",
            "compute_dtype",
            "bfloat16",
            (question.share("compute") + question.share("memory")) / 2 if now.get("compute_dtype") == "float32" else 0.0,
        ),
    ):  # fmt: skip
        if bound and name in now and now[name] != value:
            yield _setting(question, change, name, value, bound)
    for value in recomputing_less(question, str(now.get("remat", "none"))):
        yield _setting(question, f"remat={value} (now {now['remat']})", "remat", value, recomputing(question))
    if isinstance(now.get("batch"), int):
        yield _setting(question, "twice the batch", "batch", 2 * now["batch"], larger_batch(question))
    yield from _meshes(question)


def _setting(question: Question, change: str, name: str, value: object, bound: float) -> Candidate:
    options = question.with_setting(name, value)
    return Candidate(change=change, flag=f"--set {name}={value}", options=options, bound=bound, kind=name)


def _attending(question: Question) -> float:
    asked = question.asked
    assert asked is not None
    if asked.mode not in asked.builder.modes or question.unfused:
        return 0.0
    return attending(question)


def attending(question: Question) -> float:
    """What fused attention can save: scores need not go through memory, nor be rounded on the way."""
    return question.share("memory") + question.share("compute") / 4


def in_fp8(question: Question) -> float:
    """What products in fp8 can save: half of their time, less what the types are made and scaled in; others stay in bf16."""
    return 0.3 * question.share("compute")


def recomputing(question: Question) -> float:
    """What recomputing less can save: the matrix FLOPs that are not the model's, and their part of the traffic."""
    mfu, hfu = question.prediction.mfu, question.prediction.hfu
    repeated = 1 - mfu / hfu if mfu and hfu else 0.0
    return repeated * (question.share("compute") + question.share("memory") + question.share("exposed_communication"))


def larger_batch(question: Question) -> float:
    """What twice the batch can save: half of what does not grow with it."""
    fixed = question.share("overhead") + question.share("idle") + question.exposed("data", "fsdp")
    return fixed / 2 + 0.02  # and products of larger matrices are made a little faster


def recomputing_less(question: Question, now: str) -> list[str]:
    """Words that may recompute less than a word does, as the model has them; none where nothing is recomputed.

    Those that keep marked values are for models that mark them, of which `none` is what `autodiff` is of others.
    """
    asked = question.asked
    assert asked is not None
    if now in _NOTHING or not recomputing(question):
        return []
    marks = MARKS in asked.builder.overrides(asked.mode)
    return [word for word in _LESS if word != now and (word != "autodiff" if marks else word not in MARKED)]


def _meshes(question: Question) -> Iterator[Candidate]:
    """The same devices with less of one axis and more of another; only of a mesh that the user gives."""
    given = question.options.program.mesh
    if given is None:
        return
    for less, more in (("tensor", "fsdp"), ("fsdp", "tensor"), ("data", "fsdp"), ("fsdp", "data")):
        size = given.get(less, 1)
        bound = question.exposed(less)
        if size % 2 or not bound:
            continue
        for factor in sorted({2, size}):
            mesh = {**given, less: size // factor, more: given.get(more, 1) * factor}
            order = [axis for axis in ("data", "fsdp", "expert", "context", "tensor") if axis in mesh]
            kept = {
                axis: mesh[axis] for axis in (*order, *(each for each in mesh if each not in order)) if mesh[axis] > 1
            }
            said = ",".join(f"{axis}={number}" for axis, number in kept.items())
            change = f"{less}={size // factor} (now {size}), {more}={mesh[more]} (now {given.get(more, 1)})"
            yield Candidate(
                change=change,
                flag=f"--mesh {said}",
                options=question.changed(mesh=kept),
                bound=bound * (1 - 1 / factor),
                kind="degrees",
            )
