"""Devices, links and clusters, and a catalogue of them in which every number cites its source."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
