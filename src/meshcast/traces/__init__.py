"""Traces: predictions as files for other tools, those of jobs that ran, and graphs that nobody has written."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
