"""A sharded program becomes the program of one device, with explicit collectives, for any mesh size."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
