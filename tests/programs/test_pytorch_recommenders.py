"""Recommenders' calls as they are written without PyTorch, beside those that PyTorch makes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from meshcast.jobs.embedding_tables.dense_calls import written_step  # noqa: E402
from meshcast.programs.pytorch.recording.calls import AtenOp  # noqa: E402
from meshcast.programs.pytorch.recording.cuda_choices import as_on_cuda  # noqa: E402
from meshcast.programs.pytorch.recording.recorder import _CallNotes  # noqa: E402
from meshcast.zoo import DenseLayers  # noqa: E402

BATCH, TABLES, DIM = 64, 4, 16


class Cross(torch.nn.Module):  # type: ignore[name-defined]
    def __init__(self, width: int, layers: int, rank: int) -> None:
        super().__init__()
        self.v = torch.nn.ModuleList(torch.nn.Linear(width, rank, bias=False) for _ in range(layers))
        self.w = torch.nn.ModuleList(torch.nn.Linear(rank, width) for _ in range(layers))

    def forward(self, x: Any) -> Any:
        first = x
        for v, w in zip(self.v, self.w, strict=True):
            x = first * w(v(x)) + x
        return x


class Dots(torch.nn.Module):  # type: ignore[name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pairs", torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1))

    def forward(self, x: Any) -> Any:
        stacked = x.view(len(x), TABLES + 1, DIM)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return torch.cat([stacked[:, 0], products[:, self.pairs[0], self.pairs[1]]], dim=1)


def stack(widths: tuple[int, ...], last: bool) -> Any:
    layers: list[Any] = []
    for n, m in pairwise(widths):
        layers += [torch.nn.Linear(n, m), torch.nn.ReLU()]
    return torch.nn.Sequential(*(layers if last else layers[:-1]))


def recorded(layers: DenseLayers, half: bool) -> list[AtenOp]:
    with FakeTensorMode(allow_non_fake_inputs=True):
        bottom = stack((layers.dense, *layers.bottom), True)
        middle = Cross(layers.read, layers.cross, layers.rank) if layers.cross else Dots()
        top = stack((layers.read, *layers.top), False)
        parameters = [*bottom.parameters(), *middle.parameters(), *top.parameters()]
        optimizer = torch.optim.Adagrad(parameters, foreach=True)
        x, labels = torch.empty(BATCH, layers.dense), torch.empty(BATCH)
        rows = torch.empty(TABLES * BATCH, DIM, requires_grad=True)
        with as_on_cuda() as casts:
            notes = _CallNotes(casts)
            for held in (*parameters, *middle.buffers(), x, labels, rows):
                notes.view(held)
            with notes:
                notes.on = True
                with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
                    pooled = rows.view(TABLES, BATCH, DIM).transpose(0, 1)
                    below = bottom(x)[:, None]
                    read = torch.cat([below, pooled.to(torch.bfloat16) if half else pooled], dim=1)
                    click = top(middle(read.reshape(BATCH, -1)))
                loss = torch.nn.functional.binary_cross_entropy_with_logits(click.squeeze(1).float(), labels)
                notes.phase = "backward"
                loss.backward()
                notes.phase = "optimizer"
                optimizer.step()
    return notes.ops


def launching(ops: Any) -> list[tuple[Any, ...]]:
    """Calls that launch, with the shapes and dtypes of what they give; the loss, which is made of others on CUDA, aside."""
    loss = {
        "binary_cross_entropy_with_logits", "rsub", "mul_", "log_sigmoid_forward", "mean", "sub", "sigmoid", "div_",
        "ones_like",
    }  # fmt: skip
    return sorted(
        (op.phase, op.name, op.gives[0].shape, op.gives[0].dtype)
        for op in ops
        if not op.shares and op.gives and op.gives[0].shape not in ((), (BATCH,)) and op.name not in loss
        if op.name != "clone"  # of the gradient of rows, which a real table asks for
    )


def recorded_towers(layers: DenseLayers, half: bool) -> list[AtenOp]:
    with FakeTensorMode(allow_non_fake_inputs=True):
        towers = [stack((count * DIM, *layers.towers), True) for count in layers.halves]
        parameters = [each for tower in towers for each in tower.parameters()]
        optimizer = torch.optim.Adagrad(parameters, foreach=True)
        labels, rows = torch.empty(BATCH), torch.empty(TABLES * BATCH, DIM, requires_grad=True)
        with as_on_cuda() as casts:
            notes = _CallNotes(casts)
            for held in (*parameters, labels, rows):
                notes.view(held)
            with notes:
                notes.on = True
                with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
                    pooled = rows.view(TABLES, BATCH, DIM).transpose(0, 1)
                    parts = pooled.split(list(layers.halves), dim=1)
                    made = [tower(part.reshape(BATCH, -1)) for tower, part in zip(towers, parts, strict=True)]
                    click = (made[0] * made[1]).sum(dim=1)
                loss = torch.nn.functional.binary_cross_entropy_with_logits(click.float(), labels)
                notes.phase = "backward"
                loss.backward()
                notes.phase = "optimizer"
                optimizer.step()
    return notes.ops


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("half", [False, True])
def test_two_towers_calls_are_those_that_pytorch_makes(half: bool) -> None:
    layers = DenseLayers(features=TABLES, dim=DIM, towers=(24, 8))
    written = written_step(layers, BATCH, "bfloat16" if half else "float32").recording
    assert launching(written.ops) == launching(recorded_towers(layers, half))


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("cross", [0, 3])
def test_written_calls_are_those_that_pytorch_makes(cross: int, half: bool) -> None:
    layers = DenseLayers(features=TABLES, dim=DIM, bottom=(32, DIM), top=(48, 24, 1), cross=cross, rank=8)
    written = written_step(layers, BATCH, "bfloat16" if half else "float32").recording
    ours, theirs = launching(written.ops), launching(recorded(layers, half))
    assert ours == theirs
