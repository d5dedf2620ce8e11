"""Rewrites of a stack where a compiler's kernels are asked for: they are left to it, and what the user asks for is refused."""

from __future__ import annotations

from typing import Any

import pytest

from meshcast.options import Options, left_to_compiler, load_stack

MAXTEXT = load_stack("maxtext")


@pytest.mark.parametrize("asked", [{"fidelity": "compiled"}, {"lowering": "compiled"}])
def test_a_stacks_rewrites_are_left_to_a_compiler(asked: dict[str, Any]) -> None:
    options = Options(**asked).with_stack(MAXTEXT)
    assert str(options.lowering.rewrites) == "prefetch"
    assert not left_to_compiler(options).lowering.rewrites.any


def test_modelled_kernels_keep_them() -> None:
    options = Options(fidelity="analytical").with_stack(MAXTEXT)
    assert left_to_compiler(options) is options


def test_rewrites_that_are_asked_for_stay() -> None:
    alone = Options(fidelity="compiled").changed({"overlap": "prefetch"}, where="predict")
    assert left_to_compiler(alone) is alone
    beside = alone.with_stack(MAXTEXT, but=("overlap",))
    assert left_to_compiler(beside) is beside


def test_what_layers_save_stays_in_the_hosts_memory() -> None:
    """A plan asks for it, whatever the stack rewrites besides."""
    options = Options(fidelity="compiled").with_stack(MAXTEXT).having(overlap="prefetch,offload")
    assert left_to_compiler(options) is options
