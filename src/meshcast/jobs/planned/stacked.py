"""Options with the software stack that is asked for: by its name, or as `stack=NAME` in the plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from meshcast.base import UsageError, expect
from meshcast.options import Brought, Options, Stack, given_options, load_stack, stack_names
from meshcast.zoo import without_key

PYTORCH = "pytorch"  # as stacks name their framework


def chosen_options(
    options: Options | None, overrides: Mapping[str, object], *, where: str, but: Collection[str] = ()
) -> Options:
    """The options of a call from Python: with single ones changed, and with what its stack brings.

    Args:
        options: All at once; None: the defaults.
        overrides: Single ones by their flat names; `stack`, a software stack, its name or its file.
        where: What is called.
        but: Fields that it takes by other means.

    Raises:
        UsageError: There is no such setting, or the plan names another stack.
        UnsupportedError: No such stack.
    """
    single = {name: value for name, value in overrides.items() if name != "stack"}
    chosen = given_options(options).changed(single, where=where, but=but)
    stack = overrides.get("stack")
    expect(stack, (str, Path, Stack, type(None)), "a software stack, its name or its file", where="stack")
    return with_stack(chosen, stack)  # type: ignore[arg-type]  # which it is by now


def with_stack(
    options: Options, stack: str | Path | Stack | None = None, *, but: Collection[str] | None = None
) -> Options:
    """The options with what a stack brings, and a plan that does not name it any more: asked again, nothing changes.

    Args:
        options: As they are without a stack.
        stack: A stack, its name or its file; None where only the plan may name one.
        but: Fields that are chosen already, which a stack leaves alone; None: those that are not the default.

    Raises:
        UsageError: The plan names another one.
        UnsupportedError: No such stack.
    """
    plan = options.program.plan
    told = plan.value.stack if plan is not None else None
    if stack is None and told is None:
        return options
    name = stack.name if isinstance(stack, Stack) else str(stack)
    if stack is not None and told is not None and name != told:
        raise UsageError(f"the plan says stack={told}, and {name} is asked for", where="--stack", fix="name one stack")
    chosen = stack if isinstance(stack, Stack) else load_stack(stack or told or "")
    if but is None:
        but = options.differing | set(options.written)
    # In the user's own words: a key that is written is no default, whatever its value.
    plain = without_key(plan.text, "stack") if plan is not None else None
    stacked = options.having(plan=plain).with_stack(chosen, but=but)
    if isinstance(stack, Stack) or stacked.brought is None:
        return stacked
    # As it can be asked for again.
    return replace(stacked, brought=replace(stacked.brought, stack=str(stack or told), in_plan=told is not None))


def own_kernels(options: Options) -> str:
    """Whose kernels a module of PyTorch is captured with: its own, `eager` or `compile`d, where its stack is asked for."""
    brought = options.brought
    if brought is None or brought.framework != PYTORCH:
        return "xla"
    return "eager" if options.lowering.fusion == "eager" else "compile"


def is_recorded(source: str) -> bool:
    """Whether a program is PyTorch's own kernels, which attend as PyTorch has chosen (`own_kernels` writes the source)."""
    return source.startswith("torch:") and source.endswith(("(eager)", "(torch.compile)"))


def assumed_kernels(source: str, brought: Brought | None) -> tuple[str, ...]:
    """Whose kernels are assumed for a program of PyTorch where no stack says it, and the stacks that would; else nothing.

    Args:
        source: Where the program came from, as its capture wrote it.
        brought: What a stack has brought.
    """
    if not source.startswith("torch:") or brought is not None:
        return ()
    by_fusion: dict[str, list[str]] = {"eager": [], "compiler": []}
    for name in stack_names():
        if (stack := load_stack(name)).framework == PYTORCH:
            by_fusion[stack.fusion].append(name)
    known = [f"{' or '.join(by_fusion['eager'])} (eager)", *by_fusion["compiler"]]
    return (
        "a PyTorch program without a stack: the kernels are those that XLA would compile, not PyTorch's own; "
        f"--stack {' or '.join(known)} assumes those",
    )
