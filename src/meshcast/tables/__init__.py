"""Embedding tables of recommenders: files of them, where indices fall, kernels by traffic, shardings and a planner."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
