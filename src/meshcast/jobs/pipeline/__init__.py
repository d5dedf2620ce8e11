"""Pipelines: a model cut into parts with programs of their own, from a file or from Python, to a prediction."""

from meshcast.jobs.pipeline.definition import GradientReduction as GradientReduction
from meshcast.jobs.pipeline.definition import Part as Part
from meshcast.jobs.pipeline.definition import PartWiring as PartWiring
from meshcast.jobs.pipeline.definition import Pipeline as Pipeline
from meshcast.jobs.pipeline.definition import pipeline_of as pipeline_of
from meshcast.jobs.pipeline.file import read_pipeline as read_pipeline
from meshcast.jobs.pipeline.parts import Prepare as Prepare
from meshcast.jobs.pipeline.prediction import pipeline_step as pipeline_step
from meshcast.jobs.pipeline.prediction import predict_pipeline as predict_pipeline
from meshcast.jobs.pipeline.prediction import run_pipeline as run_pipeline
