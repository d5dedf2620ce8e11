"""The StableHLO function of a launch, by its form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meshcast.programs.pytorch.launches.launch import Launch
from meshcast.programs.pytorch.launches.launch_functions import Body, Made, Typed, elementwise
from meshcast.programs.pytorch.launches.library_functions import attention, convolution, gather, product, scatter, sort

_FORMS: dict[str, Callable[[Body, Launch], Made]] = {
    "pointwise": elementwise,
    "reduce": elementwise,
    "product": product,
    "convolution": convolution,
    "attention": attention,
    "gather": gather,
    "scatter": scatter,
    "sort": sort,
}


def function_text(launch: Launch, takes: Sequence[Typed], gives: Sequence[Typed]) -> str:
    """The function of a launch, named `@NAME`.

    Args:
        launch: The launch.
        takes: The storages that it is given, as it sees them.
        gives: The storages that it returns.
    """
    body = Body(takes, gives)
    return body.text(_FORMS[launch.form](body, launch))
