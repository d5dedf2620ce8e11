"""Answers: `Prediction` with breakdown, interval, provenance; JSON and text."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
