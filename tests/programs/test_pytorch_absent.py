"""Without torch: nothing imports it, and who needs it is told what to install."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import meshcast
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.programs.pytorch import library

JAX_STEP = """
import jax, jax.numpy as jnp
def step():
    return jnp.tanh, (jax.ShapeDtypeStruct((8,), jnp.float32),)
"""


def test_a_jax_target_does_not_import_torch(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(JAX_STEP)
    code = f"import meshcast, sys; meshcast.load({str(tmp_path / 'step.py')!r} + ':step'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="torch and torchax, which are not installed") as caught:
        meshcast.capture_torch(lambda x: x, (1,))
    assert "[torch]'" in str(caught.value.fix)


@pytest.mark.parametrize("place", ["at the top", "inside"])
def test_a_file_that_imports_missing_torch_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    top, inside = ("import torch", "pass") if place == "at the top" else ("", "import torch")
    (tmp_path / "model.py").write_text(f"{top}\ndef train():\n    {inside}\n")
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(UnsupportedError, match="torch") as caught:
        meshcast.load(f"{tmp_path / 'model.py'}:train")
    assert f"model.py:{1 if top else 3} (import torch)" in str(caught.value)
    assert "[torch]'" in str(caught.value.fix)


def test_nothing_holds_torch_where_it_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not library.holds_torch((1, {"a": object()}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimiser": "adamw"}, "no option 'optimiser'"),
        ({"train": True, "optimizer": "lion"}, "no optimizer 'lion'"),
        ({"train": "yes"}, "train is True or False"),
        ({"remat": "layers.*"}, "remat is for training"),
        ({"attention": "fast"}, "attention is one of auto, flash, math"),
        ({"compute_dtype": "bfloat16", "autocast": "bfloat16"}, "two ways to say one thing"),
    ],
)
def test_options_are_checked(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        meshcast.TorchOptions.of(options, where="options")
