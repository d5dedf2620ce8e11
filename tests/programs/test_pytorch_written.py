"""PyTorch as users write it: autocast regions, whole training steps, exported programs, embedding bags."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import meshcast
from meshcast.base.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")
if importlib.util.find_spec("torchax") is None:
    pytest.skip("torchax is not installed", allow_module_level=True)

from tests.programs.test_pytorch import computed, matrix_flops

X = torch.empty(16, 64, device="meta")


def model() -> Any:
    with torch.device("meta"):
        return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))


class Region(torch.nn.Module):
    """A linear layer inside an autocast region, and one outside."""

    def __init__(self, region: Callable[[Any], Any]) -> None:
        super().__init__()
        with torch.device("meta"):
            self.inside, self.outside = torch.nn.Linear(64, 64), torch.nn.Linear(64, 32)
        self.region = region

    def forward(self, x: Any) -> Any:
        with self.region(x):
            y = self.inside(x)
        return self.outside(y.float())


@pytest.mark.parametrize(
    ("region", "dtype"),
    [
        (lambda x: torch.autocast("cuda", dtype=torch.bfloat16), "bf16"),
        (lambda x: torch.autocast(x.device.type, dtype=torch.bfloat16), "bf16"),
        (lambda x: torch.autocast("cuda"), "f16"),
        (lambda x: torch.amp.autocast("cuda", torch.bfloat16, enabled=False), "f32"),
    ],
)
def test_autocast_regions_are_entered_as_written(region: Callable[[Any], Any], dtype: str) -> None:
    expected = {"f32": 2.0 * 16 * 64 * 32}
    expected[dtype] = expected.get(dtype, 0.0) + 2.0 * 16 * 64 * 64
    assert matrix_flops(meshcast.capture_torch(Region(region), (X,))) == expected
    entered, left = torch.autocast.__enter__, torch.autocast.__exit__
    assert "meshcast" not in entered.__module__ + left.__module__  # torch is as it was


def test_a_region_that_torch_has_switched_off_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("torch leaves the region on")
    with pytest.warns(UserWarning, match="CUDA"):
        region = torch.autocast("cuda", dtype=torch.bfloat16)
    with pytest.raises(UsageError, match="torch has switched it off"):
        meshcast.capture_torch(Region(lambda x: region), (X,))


def test_a_step_written_out_is_the_step_of_its_module() -> None:
    from torch.nn.utils import clip_grad_norm_

    module = model()
    optimizer = torch.optim.AdamW(module.parameters(), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def step(x: Any, y: Any) -> float:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            output = module(x)
        loss = torch.nn.functional.mse_loss(output.float(), y)
        loss.backward()
        clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return float(loss.item())

    options = {
        "train": True,
        "loss": lambda output, y: torch.nn.functional.mse_loss(output.float(), y),
        "targets": (X,),
        "autocast": "bfloat16",
        "optimizer": optimizer,
        "clip_grad_norm": 1.0,
    }
    written, given = meshcast.capture_torch(step, (X, X)), meshcast.capture_torch(module, (X,), options)
    assert [(a.role, a.donated) for a in written.arguments] == [(a.role, a.donated) for a in given.arguments]
    times = [meshcast.predict(each, on="h200", fidelity="analytical") for each in (written, given)]
    assert matrix_flops(written) == matrix_flops(given)
    assert times[0].step_time_s == times[1].step_time_s


def test_the_optimizer_says_what_a_step_trains() -> None:
    module = model()
    optimizer = torch.optim.SGD(module[2].parameters(), lr=0.1)

    def step(x: Any) -> None:
        module(x).sum().backward()
        optimizer.step()

    # Two products forward, and one for the last layer's weights; of the first layer nothing is needed.
    assert meshcast.capture_torch(step, (X,)).text.count("stablehlo.dot_general") == 3


def test_modules_of_a_function_are_its_parameters() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model = model()

        def evaluate(self, x: Any) -> Any:
            return self.model(x).argmax(-1)

    trainer = Trainer()
    for function in (trainer.evaluate, lambda x: trainer.model(x)):
        roles = [a.role.value for a in meshcast.capture_torch(function, (X,)).arguments]
        assert roles.count("parameter") == 4


def test_two_backward_passes_are_no_step() -> None:
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def step(x: Any) -> None:
        module(x).sum().backward()
        module(x).mean().backward()
        optimizer.step()

    with pytest.raises(UnsupportedError, match=r"backward\(\) was called 2 times and step\(\) 1 times"):
        meshcast.capture_torch(step, (X,))


def test_exported_programs_are_taken() -> None:
    exported = torch.export.export(torch.nn.Linear(64, 8), (torch.zeros(16, 64),))
    assert matrix_flops(meshcast.load(exported)) == {"f32": 2.0 * 16 * 64 * 8}


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated")
def test_torchscript_is_refused() -> None:
    traced = torch.jit.trace(torch.nn.Linear(64, 64), torch.zeros(2, 64))
    for module in (traced, torch.nn.Sequential(traced)):
        with pytest.raises(UnsupportedError, match="TorchScript"):
            meshcast.capture_torch(module, (X,))


def test_recomputing_what_is_never_called_is_refused() -> None:
    class Keyed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.ModuleDict({"up": torch.nn.Linear(64, 64)})])

        def forward(self, x: Any) -> Any:
            return self.layers[0]["up"](x).sum()

    with torch.device("meta"):
        module = Keyed()
    with pytest.raises(UsageError, match=r"layers\.0: never called as modules"):
        meshcast.capture_torch(module, (X,), {"train": True, "remat": "layers.*"})


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 3])
def test_embedding_bags_compute_what_torch_computes(mode: str, padding: int | None) -> None:
    torch.manual_seed(0)
    indices, offsets = torch.randint(10, (12,)), torch.tensor([0, 0, 3, 8, 12])
    for last, args in ((False, (indices.view(3, 4),)), (False, (indices, offsets)), (True, (indices, offsets))):
        bag = torch.nn.EmbeddingBag(10, 4, mode=mode, padding_idx=padding, include_last_offset=last)
        (value,), _ = computed(bag, args, {})
        np.testing.assert_allclose(value, bag(*args).detach().numpy(), atol=1e-6)


def test_embedding_bags_train() -> None:
    with torch.device("meta"):
        module = torch.nn.Sequential(torch.nn.EmbeddingBag(1000, 8, mode="sum", sparse=True))
        indices = torch.empty(32, 10, dtype=torch.long)
    program = meshcast.capture_torch(module, (indices,), {"train": True, "loss": lambda y: y.sum()})
    assert "stablehlo.scatter" in program.text
    prediction = meshcast.predict(program, on="h200", fidelity="analytical")
    assert any("sparse embeddings (0) are dense here" in warning for warning in prediction.warnings)


def test_a_prediction_says_whose_kernels_it_assumes() -> None:
    program = meshcast.capture_torch(model(), (X,))
    for stack, said in ((None, True), ("pytorch-compile", False), ("xla", False)):
        warnings = meshcast.predict(program, on="h200", fidelity="analytical", stack=stack).warnings
        assert any("kernels are those that XLA would compile" in warning for warning in warnings) is said
