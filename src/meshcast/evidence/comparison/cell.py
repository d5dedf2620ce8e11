"""`Cell`: what one fidelity says about one target on one device, or why it says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from meshcast.base import MeshcastError, format_bytes
from meshcast.results import Prediction

CELL_SCHEMA = "meshcast.comparison-cell/1"
INFEASIBLE, UNSUPPORTED = 3, 4  # the command line's exit codes

# `failed`: unreadable, refused as it was asked for, or a bug.
Status = Literal["answered", "infeasible", "unsupported", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question of a comparison: a target on a device or cluster, in one fidelity, each by the name it is shown by."""

    target: str
    on: str
    fidelity: str

    def __str__(self) -> str:
        return f"{self.target} on {self.on}, {self.fidelity}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One question and its answer.

    Attributes:
        ask: The question.
        status: Whether there is a time, and if not, what kind of reason there is.
        exit_code: What the command line would exit with for this cell alone; 0 where it was answered.
        prediction: The prediction as `predict --json` prints it; None where the question could not be answered at all.
        error: The error as `--json` prints it, less its outer key; None where there is a prediction.
        own: Whether most of the time is the asked fidelity's own. `profiled`, say, models what was not measured, and
            where that is most of the step, its agreement with the model would prove nothing.
        reused: Whether it was answered by an earlier run.
    """

    ask: Ask
    status: Status
    exit_code: int
    prediction: Mapping[str, Any] | None = field(default=None, repr=False)
    error: Mapping[str, Any] | None = None
    own: bool = True
    reused: bool = field(default=False, compare=False)

    @property
    def step_time_s(self) -> float | None:
        """Seconds of a step; None where it cannot run or nobody knows."""
        return None if self.prediction is None else self.prediction["step_time_s"]

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The interval of the step time in seconds; None where there is no time."""
        interval = None if self.prediction is None else self.prediction["step_time_interval_s"]
        return None if interval is None else (interval[0], interval[1])

    @property
    def answered_by(self) -> str | None:
        """The fidelity that most of the time comes from: another one than was asked for, where that had to stand in."""
        return None if self.step_time_s is None or self.prediction is None else str(self.prediction["fidelity"])

    @property
    def own_time_s(self) -> float | None:
        """The step time where it is this fidelity's own; None where most of it comes from one that stood in."""
        return self.step_time_s if self.own else None

    @property
    def reason(self) -> str:
        """Why there is no time; empty where there is one."""
        if self.error is not None:
            # A place that the question names already says nothing new.
            where = str(self.error.get("where") or "")
            known = where in ("--on", "--fidelity", self.ask.target, self.ask.on)
            return str(self.error["message"]) if known or not where else f"{where}: {self.error['message']}"
        if self.prediction is None or self.prediction["infeasible"] is None:
            return ""
        problem = self.prediction["infeasible"]
        resource = str(problem["resource"])
        show = format_bytes if resource.endswith("_bytes") else "{:,.4g}".format
        what = resource.removesuffix("_bytes").replace("_", " ")
        return f"needs {show(problem['demand'])} of {what}, there is {show(problem['bound'])}"

    def to_json(self) -> dict[str, Any]:
        """The object of `compare --json` and of a run folder, without what other cells decide (ratios)."""
        return {
            "schema": CELL_SCHEMA,
            "target": self.ask.target,
            "on": self.ask.on,
            "fidelity": self.ask.fidelity,
            "status": self.status,
            "exit_code": self.exit_code,
            "feasible": {"answered": True, "infeasible": False}.get(self.status),
            "reason": self.reason or None,
            "answered_by": self.answered_by,
            "own": self.own,
            "step_time_s": self.step_time_s,
            "step_time_interval_s": list(self.interval_s) if self.interval_s else None,
            "error": dict(self.error) if self.error is not None else None,
            "prediction": dict(self.prediction) if self.prediction is not None else None,
        }


def predicted_cell(ask: Ask, prediction: Prediction, *, own: bool) -> Cell:
    """The cell of a prediction, feasible or not."""
    if prediction.feasible:
        return Cell(ask=ask, status="answered", exit_code=0, prediction=prediction.to_json(), own=own)
    return Cell(ask=ask, status="infeasible", exit_code=INFEASIBLE, prediction=prediction.to_json())


def refused_cell(ask: Ask, error: MeshcastError) -> Cell:
    """The cell of a question that ended in an error."""
    kinds: dict[int, Status] = {INFEASIBLE: "infeasible", UNSUPPORTED: "unsupported"}
    status = kinds.get(error.exit_code, "failed")
    return Cell(ask=ask, status=status, exit_code=error.exit_code, error=error.to_json()["error"])


def kept_cell(ask: Ask, found: Mapping[str, Any]) -> Cell:
    """The cell that an earlier run wrote, as the answer to the question asked now.

    Raises:
        KeyError: It is not what `Cell.to_json` writes.
    """
    cell = Cell(
        ask=ask,
        status=found["status"],
        exit_code=found["exit_code"],
        prediction=found["prediction"],
        error=found["error"],
        own=found["own"],
    )
    return replace(cell, reused=True)
