"""The stack most like a run's own, in its place: what is to be expected of software that nobody looked at.

Of the choices that decide which kernels run and what overlaps, two stacks have some in common. The next stack is one that fuses
alike, as that decides most kernels, and of these the one of the most

    likeness = equal choices - rewrites of the stack's own that the other lacks

(`docs/stacks.md` names both). What a run's cells say for themselves, such as recomputation and the type of gradients, does not
count: it stays as it is. A stack that differs in nothing is the same under another name, and is passed over, and so is one whose
differences come to nothing in the run: rewrites count as the run has them (`megatron-deepspeed` is `megatron-2022` in fp16, where
it has no `wide-sums`). Of equally near ones the one that lacks the fewest rewrites is taken. Devices that only a compiler makes
programs for have stacks of JAX.
"""

from __future__ import annotations

from collections.abc import Callable

from meshcast.hardware import Device
from meshcast.options import Stack, load_stack, stack_names

CHOICES = ("fusion", "attention_library", "layers", "ragged", "scheduler", "channels", "attention")


RewritesOf = Callable[[Stack], str]
"""The rewrites of a stack in a run, as `--overlap` takes them."""


def _own(stack: Stack) -> str:
    return stack.overlap


def next_stack(name: str, device: Device, overlap: RewritesOf = _own) -> str:
    """The name of the stack most like this one that runs on a device.

    Args:
        name: The stack.
        device: What it runs on.
        overlap: The rewrites that a stack comes to in the run; its own where there is no run.
    """
    own = load_stack(name)
    others = [stack for other in stack_names() if not is_same(own, stack := load_stack(other), overlap)]
    able = [stack for stack in others if device.kind == "gpu" or stack.framework == "jax"]

    def order(stack: Stack) -> tuple[bool, int, int, str]:
        lacking = len(_rewrites(overlap(own)) - _rewrites(overlap(stack)))
        return stack.fusion != own.fusion, -likeness(own, stack, overlap), lacking, stack.name

    return min(able, key=order).name


def likeness(own: Stack, other: Stack, overlap: RewritesOf = _own) -> int:
    """How many choices two stacks have in common, less the rewrites of the first that the second lacks."""
    equal = sum(bool(getattr(own, choice) == getattr(other, choice)) for choice in CHOICES)
    return equal - len(_rewrites(overlap(own)) - _rewrites(overlap(other)))


def is_same(one: Stack, other: Stack, overlap: RewritesOf = _own) -> bool:
    """Whether two stacks differ in nothing that counts."""
    return likeness(one, other, overlap) == likeness(other, one, overlap) == len(CHOICES)


def _rewrites(overlap: str) -> set[str]:
    return {rewrite.partition("=")[0] for rewrite in overlap.split(",") if rewrite}
