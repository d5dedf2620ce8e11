"""Searching: the best plan of a model, the best machine for it, and what a space of designs looks like."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
