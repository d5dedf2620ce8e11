"""The stack most like a run's own, in its place: what is to be expected of software that nobody looked at.

Of the choices that decide which kernels run and what overlaps, two stacks have some in common. The next stack is one that fuses
alike, as that decides most kernels, and of these the one of the most

    likeness = equal choices - rewrites that only one of the two has

(`docs/stacks.md` names both). What a run's cells say for themselves, such as recomputation and the type of gradients, does not
count: it stays as it is. A stack that differs in nothing is the same under another name, and is passed over; of equally near ones
the one that lacks the fewest of the stack's own rewrites is taken. Devices that only a compiler makes programs for have stacks
of JAX.
"""

from __future__ import annotations

from meshcast.hardware import Device
from meshcast.options import Stack, load_stack, stack_names

CHOICES = ("fusion", "attention_library", "layers", "ragged", "scheduler", "channels", "attention")


def next_stack(name: str, device: Device) -> str:
    """The name of the stack most like this one that runs on a device."""
    own = load_stack(name)
    others = [stack for other in stack_names() if (stack := load_stack(other)) and likeness(own, stack) < len(CHOICES)]
    able = [stack for stack in others if device.kind == "gpu" or stack.framework == "jax"]

    def order(stack: Stack) -> tuple[bool, int, int, str]:
        lacking = len(_rewrites(own) - _rewrites(stack))
        return stack.fusion != own.fusion, -likeness(own, stack), lacking, stack.name

    return min(able, key=order).name


def likeness(one: Stack, other: Stack) -> int:
    """How many choices two stacks have in common, less the rewrites that one of them has alone."""
    equal = sum(bool(getattr(one, choice) == getattr(other, choice)) for choice in CHOICES)
    return equal - len(_rewrites(one) ^ _rewrites(other))


def _rewrites(stack: Stack) -> set[str]:
    return {rewrite.partition("=")[0] for rewrite in stack.overlap.split(",") if rewrite}
