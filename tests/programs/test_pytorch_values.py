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
from meshcast.programs.pytorch.recording.fake_modules import on_fakes
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


def test_numbers_are_compared_with_no_choices() -> None:
    ids = torch.empty(4, dtype=torch.long, device="meta")
    assert recorded(lambda ids: ids.unsqueeze(-1) == torch.arange(0), ids).returned[0].shape == (4, 0)


def test_what_is_written_to_a_keyword_is_not_known() -> None:
    def cut(x: Any) -> Any:
        end = torch.arange(8)
        torch.add(x[:8, 0].long(), 1, out=end)
        return x[: end.max().item()]

    with pytest.raises(UnsupportedError, match="no one knows without running it"):
        recorded(cut, rows(64))


@pytest.mark.parametrize(
    "draw",
    [
        torch.poisson,
        lambda x: torch.binomial(x, x / 8),
        lambda x: x.cauchy_(),
        torch._standard_gamma,
        torch._sample_dirichlet,
        torch.bernoulli,
        torch.rand_like,
        lambda x: x.normal_(),
        lambda x: torch.multinomial(x, 1),
        lambda x: torch.dropout(x, 0.5, True),
        lambda x: torch.nn.functional.rrelu(x, training=True),
        lambda x: x.log_normal_() + torch.randperm(4),
    ],
)
def test_the_generator_of_the_caller_stays_where_it_is(draw: Any) -> None:
    before = torch.get_rng_state()
    recorded(lambda x: x[0] + draw(torch.full((4,), 1.0)).sum(), rows(64))
    assert torch.equal(before, torch.get_rng_state())


def test_what_only_sounds_random_is_known() -> None:
    """`native_dropout_backward` draws nothing."""

    def cut(x: Any) -> Any:
        ends = torch.ops.aten.native_dropout_backward(torch.full((2,), 5.0), torch.ones(2, dtype=torch.bool), 1.0)
        return x[: int(ends.max())]

    assert recorded(cut, rows(64)).returned[0].shape == (5, 8)


def test_small_tensors_are_made_like_large_ones() -> None:
    large = torch.empty(1 << 44, 8, device="meta")  # more than any host has
    step = recorded(lambda x, large: x[: int(large.new_full((4,), 3).sum())], rows(64), large)
    assert step.returned[0].shape == (12, 8)


@pytest.mark.parametrize("length", [64, 1 << 20])
def test_a_tensor_is_equal_to_itself(length: int) -> None:
    def checked(x: Any) -> Any:
        if torch.any(x != x) or not torch.all(x == x) or torch.isnan(x).any() or torch.isinf(x).any():
            raise ValueError("not a number")
        return x + 1

    assert recorded(checked, rows(length)).returned[0].shape == (length, 8)


def test_a_module_is_itself_again_where_a_fake_cannot_be_made() -> None:
    module = torch.nn.Linear(4, 4)
    before = dict(module.named_parameters())

    def fake(tensor: Any) -> Any:
        if tensor.dim() == 1:
            raise RuntimeError("no fake")
        return torch.empty_like(tensor, device="meta")

    stack = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), module)
    first = stack[0].weight
    with pytest.raises(RuntimeError, match="no fake"), on_fakes(stack, fake):
        pass
    assert stack[0].weight is first
    assert all(each is before[name] for name, each in module.named_parameters())
