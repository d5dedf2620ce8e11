"""Parts of models whose local and global layers alternate."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from meshcast.zoo import models
from meshcast.zoo.shapes.decoder import DecoderConfig


def windows(config: DecoderConfig) -> list[int]:
    """Every layer's window, in order."""
    return [window for stack in config.stacks() for _ in range(stack.count) for window in stack.windows]


@pytest.mark.parametrize(("name", "parts"), [("gemma2-2b", 2), ("gemma3-4b", 4), ("gemma3-12b", 5)])
def test_parts_have_the_windows_of_their_layers(name: str, parts: int) -> None:
    """Wherever a model is cut, the layers of its parts are those of the whole."""
    config = models()[name].config
    assert isinstance(config, DecoderConfig)
    cuts = [config.layers * place // parts for place in range(parts + 1)]
    found = [w for a, b in itertools.pairwise(cuts) for w in windows(config.part(a, b - a))]
    assert found == windows(config)


def test_a_part_of_a_part_goes_on_with_the_pattern() -> None:
    config = replace(models()["gemma3-4b"].config, layers=18)
    assert windows(config.part(4, 10).part(3, 5)) == windows(config)[7:12]
