"""Workload graphs that nobody has written: a model of our own graphs, grown layer by layer, and traces of what it makes."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
