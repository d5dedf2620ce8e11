"""`SearchWork`: what a search asks of an engine, as one JSON object; and the answer to it, in whatever process it is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from meshcast.base import MeshcastError, keep_programs, kept_for_good
from meshcast.explore.evaluating import evaluate, layers_costs
from meshcast.explore.point import Outcome, Point
from meshcast.explore.together import evaluate_many
from meshcast.jobs import LayersCost

Kind = Literal["point", "layers"]
PROGRAMS = 512  # that a worker keeps, of about a megabyte each: those of a hundred plans and more


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWork:
    """One thing to work out.

    Attributes:
        kind: `point`: a prediction; `layers`: what some layers take under the point's plan.
        point: The point; of `layers` any that has such layers.
        first: The first of the layers.
        layers: How many; 0: one in its loop.
        period: Layers after which their pattern begins again.
        last: Whether what ends the model is with them.
        family: What has programs in common: works of a family are best done in one process.
    """

    kind: Kind
    point: Point
    first: int = 0
    layers: int = 0
    period: int = 1
    last: bool = False
    family: str = ""

    def to_json(self) -> dict[str, Any]:
        """The object that `from_json` reads."""
        return {
            "kind": self.kind, "point": self.point.to_json(), "first": self.first, "layers": self.layers,
            "period": self.period, "last": self.last, "family": self.family,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SearchWork:
        """The work of an object."""
        return cls(**{**data, "point": Point.from_json(data["point"])})


Answer = Outcome | LayersCost | None


def done(work: SearchWork) -> Answer:
    """What comes of a work; of layers that cannot be had, nothing."""
    if work.kind == "point":
        return evaluate(work.point)
    try:
        return layers_costs(
            work.point.target,
            work.point.asked,
            first=work.first,
            layers=work.layers,
            period=work.period,
            last=work.last,
        )
    except MeshcastError:
        return None


def all_done(works: Sequence[SearchWork]) -> list[Answer]:
    """What comes of some works, in their order; points of which hardware alone differs are evaluated together."""
    places = [place for place, work in enumerate(works) if work.kind == "point"]
    outcomes = dict(zip(places, evaluate_many([works[place].point for place in places]), strict=True))
    return [outcomes[place] if place in outcomes else done(work) for place, work in enumerate(works)]


class Worker:
    """What works on in a process of its own, text in and text out."""

    def __init__(self) -> None:
        self._settled = False
        keep_programs(PROGRAMS)

    def answer(self, text: str) -> str:
        """The answers to some works. Behind the first everything is loaded, and collections need not walk over it again."""
        works = [SearchWork.from_json(data) for data in json.loads(text)]
        found = json.dumps([answer_json(answer) for answer in all_done(works)])
        if not self._settled:
            kept_for_good()
            self._settled = True
        return found


def answer_json(answer: Answer) -> dict[str, Any]:
    """The object that `answer_of` reads."""
    if isinstance(answer, Outcome):
        return {"outcome": answer.to_json()}
    return {"layers": asdict(answer) if answer is not None else None}


def answer_of(data: Mapping[str, Any]) -> Answer:
    """The answer of an object."""
    if "outcome" in data:
        return Outcome.from_json(data["outcome"])
    return LayersCost.from_json(data["layers"]) if data["layers"] is not None else None


def works_text(works: Sequence[SearchWork]) -> str:
    """The text that `Worker.answer` reads."""
    return json.dumps([work.to_json() for work in works])


def answers_of(text: str | bytes) -> list[Answer]:
    """The answers of the text that a worker gives back."""
    return [answer_of(data) for data in json.loads(text)]


def failed(work: SearchWork, why: str) -> Answer:
    """The answer to a work that cannot be done because whoever does it dies of it."""
    return Outcome(status="failed", error=why, code="crashed") if work.kind == "point" else None
