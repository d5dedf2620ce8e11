from meshcast.base.errors import MeshcastError as MeshcastError
from meshcast.base.mesh import Mesh as Mesh
from meshcast.evidence import Comparison as Comparison
from meshcast.evidence import compare as compare
from meshcast.evidence import compare_measured as compare_measured
from meshcast.jobs import Part as Part
from meshcast.jobs import Pipeline as Pipeline
from meshcast.jobs import Run as Run
from meshcast.jobs import pipeline_of as pipeline_of
from meshcast.jobs import predict as predict
from meshcast.jobs import prepare as prepare
from meshcast.lower import lower as lower_workload
from meshcast.options import Options as Options
from meshcast.partition import partition as partition_program
from meshcast.programs import Program as Program
from meshcast.programs import TorchOptions as TorchOptions
from meshcast.programs import capture as capture_function
from meshcast.programs import capture_torch as capture_torch
from meshcast.programs import load as load
from meshcast.results import Prediction as Prediction
from meshcast.workload import ReadOptions as ReadOptions
from meshcast.workload import Workload as Workload
from meshcast.workload import read_workload as read_workload

__version__: str
# Without it, names with another one in their package would be none of this stub's for type checkers.
__all__ = [
    "Comparison",
    "Mesh",
    "MeshcastError",
    "Options",
    "Part",
    "Pipeline",
    "Prediction",
    "Program",
    "ReadOptions",
    "Run",
    "TorchOptions",
    "Workload",
    "__version__",
    "capture_function",
    "capture_torch",
    "compare",
    "compare_measured",
    "load",
    "lower_workload",
    "partition_program",
    "pipeline_of",
    "predict",
    "prepare",
    "read_workload",
]
