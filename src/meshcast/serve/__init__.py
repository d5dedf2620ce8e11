"""The page on localhost: predictions, comparisons and searches for people who would rather click (`docs/serving.md`)."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
