"""The run of one rank: streams, dependencies and overlap; peak memory by liveness."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
