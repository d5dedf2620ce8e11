"""LSTM language models (Zaremba 2014)."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmConfig:
    """The sizes of a stack of LSTM layers, all of one width, between an embedding and a projection to words."""

    layers: int
    dim: int
    vocab: int = 10000


SHAPES = {
    "lstm-tiny": Shape(config=LstmConfig(layers=2, dim=32, vocab=256), summary="LSTM with two small layers"),
    "lstm-medium": Shape(config=LstmConfig(layers=2, dim=650), summary="Zaremba's medium LSTM, 20M"),
    "lstm-large": Shape(config=LstmConfig(layers=2, dim=1500), summary="Zaremba's large LSTM, 66M"),
}
