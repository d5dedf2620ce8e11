"""Predictions, explorations and comparisons as one HTML file that needs nothing else (`docs/report.md`)."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
