"""Seconds for kernels: one protocol, several fidelities, chosen by an explicit chain."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
