"""Transducers (Graves 2012) that write down what is spoken, as MLPerf (1.0 to 3.1) trains one on LibriSpeech."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class RnntConfig:
    """An encoder of sound, a reader of what is written so far, and what joins them.

    MLPerf's: 240 numbers a frame (three spliced), two LSTMs of 1,024, every two positions put together, three more; two LSTMs
    of 512 over 1,024 pieces of words; 512 where they are joined (`retired_benchmarks/rnn_speech_recognition` of
    mlcommons/training).

    Attributes:
        layers: LSTMs of the encoder, of which `before` come before positions are put together, `stack` at a time.
    """

    layers: int
    dim: int
    before: int = 2
    stack: int = 2
    features: int = 240
    read_layers: int = 2
    read_dim: int = 512
    joint: int = 512
    vocab: int = 1024

    def __post_init__(self) -> None:
        require(0 < self.before < self.layers, f"before={self.before} of layers={self.layers}", "before < layers")


SHAPES = {
    "rnnt-tiny": Shape(
        config=RnntConfig(layers=2, dim=32, before=1, features=16, read_layers=1, read_dim=16, joint=16, vocab=32),
        summary="Transducer with two small layers",
    ),
    "rnnt": Shape(config=RnntConfig(layers=5, dim=1024), summary="Transducer of speech (MLPerf 1.0 to 3.1)"),
}
