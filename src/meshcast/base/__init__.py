"""What everything stands on: errors, units, meshes, files, caches, child processes, signals, progress."""

from meshcast.base.doors import door

__getattr__, __dir__, __all__ = door(__name__)
