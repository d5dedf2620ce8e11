"""Traces out: what was predicted as files for other tools."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
