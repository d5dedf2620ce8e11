from meshcast.base.errors import MeshcastError as MeshcastError
from meshcast.base.mesh import Mesh as Mesh
from meshcast.estimate import Estimates as Estimates
from meshcast.estimate import Estimator as Estimator
from meshcast.estimate import Support as Support
from meshcast.evidence import Comparison as Comparison
from meshcast.evidence import compare as compare
from meshcast.evidence import compare_measured as compare_measured
from meshcast.hardware import Cluster as Cluster
from meshcast.hardware import Device as Device
from meshcast.jobs import Part as Part
from meshcast.jobs import Pipeline as Pipeline
from meshcast.jobs import Run as Run
from meshcast.jobs import pipeline_of as pipeline_of
from meshcast.jobs import predict as predict
from meshcast.jobs import prepare as prepare
from meshcast.lower import LoweredProgram as LoweredProgram
from meshcast.options import Options as Options
from meshcast.options import Stack as Stack
from meshcast.programs import Program as Program
from meshcast.programs import TorchOptions as TorchOptions
from meshcast.programs import capture as capture
from meshcast.programs import capture_torch as capture_torch
from meshcast.programs import load as load
from meshcast.report import write_report as write_report
from meshcast.results import Infeasible as Infeasible
from meshcast.results import Prediction as Prediction
from meshcast.simulate import Timeline as Timeline
from meshcast.traces import trace as trace
from meshcast.workload import Workload as Workload
from meshcast.workload import register_custom_call as register_custom_call
from meshcast.zoo import Plan as Plan

__version__: str
# Without it, names with another one in their package would be none of this stub's for type checkers.
__all__ = [
    "Cluster",
    "Comparison",
    "Device",
    "Estimates",
    "Estimator",
    "Infeasible",
    "LoweredProgram",
    "Mesh",
    "MeshcastError",
    "Options",
    "Part",
    "Pipeline",
    "Plan",
    "Prediction",
    "Program",
    "Run",
    "Stack",
    "Support",
    "Timeline",
    "TorchOptions",
    "Workload",
    "__version__",
    "capture",
    "capture_torch",
    "compare",
    "compare_measured",
    "load",
    "pipeline_of",
    "predict",
    "prepare",
    "register_custom_call",
    "trace",
    "write_report",
]
