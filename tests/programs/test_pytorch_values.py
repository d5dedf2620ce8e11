"""Recorded steps that ask values: what is made of numbers alone is known, masks hold everywhere, experts share rows evenly."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from meshcast.base import UnsupportedError

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from meshcast.programs.pytorch.eager.kernels import eager_launches
from meshcast.programs.pytorch.options import TorchOptions
from meshcast.programs.pytorch.recording.calls import Recording
from meshcast.programs.pytorch.recording.recorder import record

IDS = torch.empty(4, 16, dtype=torch.long, device="meta")


class Function(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.__dict__["function"] = function

    def forward(self, *args: Any) -> Any:
        return self.__dict__["function"](*args)


def recorded(function: Any, *args: Any, compiled: bool = False) -> Recording:
    return record(Function(function), args, TorchOptions(), label="step", compiled=compiled)


def rows(length: int) -> torch.Tensor:
    return torch.empty(length, 8, device="meta")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("function", "length"),
    [
        (lambda x: x[: torch.arange(8).max().item()], 7),
        (lambda x: x[: int((torch.ones(2, 16, 16)[:, 0] > 0).sum())], 32),
        (lambda x: x[torch.tensor(np.arange(64) < 10)], 10),  # a mask that numpy made
        (lambda x: x[torch.arange(64) % 2 == 0], 32),
        (lambda x: x[: len(torch.tensor([3, 1, 3]).unique())], 2),
        (lambda x: x[x[:, 0] > 0], 64),  # which no one knows: all
    ],
)
def test_what_a_module_makes_of_numbers_is_known(function: Any, length: int, compiled: bool) -> None:
    assert recorded(function, rows(64), compiled=compiled).returned[0].shape == (length, 8)


def test_tokens_are_no_padding() -> None:
    step = recorded(lambda ids: ids[:, : int((ids != 0).sum(1).max())], IDS)
    assert step.returned[0].shape == (4, 16)


def test_what_was_written_over_by_unknown_values_is_not_known() -> None:
    def cut(x: Any) -> Any:
        ends = torch.arange(8)
        ends[2:] = x[:6, 0].long()
        return x[: ends.max().item()]

    with pytest.raises(UnsupportedError, match="no one knows without running it"):
        recorded(cut, rows(64))


def test_a_number_under_a_mask_is_filled_in() -> None:
    def filled(x: Any) -> Any:
        y = x + 1
        y[x > 0] = 0.0
        return y

    names = [op.name for op in recorded(filled, rows(64)).ops if not op.shares]
    assert "masked_fill_" in names
    assert "nonzero" not in names


def experts(dtype: Any) -> tuple[Any, ...]:
    with torch.device("meta"):
        return torch.empty(64, 8, dtype=dtype), torch.empty(4, 8, 16, dtype=dtype), torch.empty(4, dtype=torch.int32)


def test_experts_in_other_dtypes_than_bf16_are_a_product_each() -> None:
    """The host reads where they end, and waits; 64 rows are 16 for each of four."""
    step = recorded(lambda x, w, ends: torch._grouped_mm(x, w, offs=ends), *experts(torch.float32))
    names = Counter(op.name for op in step.ops if not op.shares or op.waits)
    assert names == {"wait": 1, "mm": 4}
    assert {op.takes[0].shape for op in step.ops if op.name == "mm"} == {(16, 8)}


def test_experts_in_bf16_are_one_kernel() -> None:
    step = recorded(lambda x, w, ends: torch._grouped_mm(x, w, offs=ends), *experts(torch.bfloat16))
    (op,) = (op for op in step.ops if not op.shares)
    before, products = eager_launches(op)
    assert before.name == "prepare_grouped_gemm_data"
    assert products.form == "product"
    assert [products.told[name] for name in ("batch", "m", "k", "n")] == [4, 16, 8, 16]


def test_choices_of_experts_are_spread_evenly() -> None:
    """A loop over the experts that anything was sent to: 64 tokens are 16 for each of four."""

    def loop(x: Any, chosen: Any) -> Any:
        out, mask = torch.zeros_like(x), torch.nn.functional.one_hot(chosen, 4).permute(2, 1, 0)
        for expert in torch.greater(mask.sum((-1, -2)), 0).nonzero():
            place, row = torch.where(mask[expert].squeeze(0))
            out.index_add_(0, row, x[row] * float(f"{expert[0]}") + place[:, None])
        return out

    step = recorded(loop, rows(64), torch.empty(64, 1, dtype=torch.long, device="meta"))
    assert [op.takes[2].shape for op in step.ops if op.name == "index_add_"] == [(16, 8)] * 4


def test_buffers_that_have_values_decide() -> None:
    class Cut(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("length", torch.tensor(5))

        def forward(self, x: Any) -> Any:
            return x[: self.length]

    step = record(Cut(), (rows(64),), TorchOptions(), label="step")
    assert step.returned[0].shape == (5, 8)
    with pytest.raises(UnsupportedError):
        record(Cut().to("meta"), (rows(64),), TorchOptions(), label="step")
