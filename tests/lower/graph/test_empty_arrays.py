"""Arrays without elements: no kernel and no collective of theirs is left."""

from __future__ import annotations

import pytest

from tests.lower.programs import all_reduce_text, kernels, lower_text


@pytest.mark.parametrize("backend", ["xla-gpu", "xla-tpu"])
@pytest.mark.parametrize(("rows", "count"), [("512", 1), ("0", 0)])
def test_a_collective_of_no_elements_is_none(rows: str, count: int, backend: str) -> None:
    text = all_reduce_text(("reduce", "multiply", "use")).replace("512x", f"{rows}x").replace("x512x", f"x{rows}x")
    assert sum(kernel.collective is not None for kernel in kernels(lower_text(text, backend))) == count
