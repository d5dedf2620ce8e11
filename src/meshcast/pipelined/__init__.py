"""Pipelines: a model cut into parts with programs of their own, from a file or from Python, to a prediction."""

from meshcast.pipelined.definition import Part as Part
from meshcast.pipelined.definition import PartWiring as PartWiring
from meshcast.pipelined.definition import Pipeline as Pipeline
from meshcast.pipelined.definition import Reduction as Reduction
from meshcast.pipelined.definition import is_pipeline as is_pipeline
from meshcast.pipelined.definition import pipeline_of as pipeline_of
from meshcast.pipelined.file import read_pipeline as read_pipeline
from meshcast.pipelined.parts import Prepare as Prepare
from meshcast.pipelined.prediction import pipeline_step as pipeline_step
from meshcast.pipelined.prediction import predict_pipeline as predict_pipeline
from meshcast.pipelined.prediction import run_pipeline as run_pipeline
