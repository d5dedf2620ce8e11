"""Chakra execution traces: their schema, nodes and attributes as values and as bytes, and the file of one rank."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
