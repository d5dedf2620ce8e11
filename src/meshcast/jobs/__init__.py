"""A target and its options become a job, and the job a prediction: programs, pipelines, models that serve, traces of jobs."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
