"""The run: streams, dependencies and overlap; peak memory by liveness; pipelines, classes of ranks, their collectives.

One rank's step begins in `engine`, several classes' in `class_run`; `retiming` does a step again with other times, `memory` has
what is alive at once, `pipelines` the schedules of stages.
"""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
