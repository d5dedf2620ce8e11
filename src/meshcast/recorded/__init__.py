"""Traces of jobs that ran: PyTorch's host and device traces linked into Chakra's, all ranks of a job together."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
