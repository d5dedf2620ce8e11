"""Answers: `Prediction` with breakdown, interval, provenance; JSON and text."""

from meshcast.results.prediction import CollectiveShare as CollectiveShare
from meshcast.results.prediction import Fix as Fix
from meshcast.results.prediction import Infeasible as Infeasible
from meshcast.results.prediction import KernelShare as KernelShare
from meshcast.results.prediction import Lever as Lever
from meshcast.results.prediction import Prediction as Prediction
from meshcast.results.prediction import Provenance as Provenance
from meshcast.results.prediction import RankShare as RankShare
