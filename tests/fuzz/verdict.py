"""What an answer is worth: in order, or one of the ways in which a command must not end."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from typing import NoReturn

from tests.fuzz.process import Answer

IN_ORDER = (0, 2, 3, 4)  # the exit codes of docs and contract; 1 is a bug of ours
CPU_SECONDS = 10.0
CPU_SECONDS_PER_MIB = 20.0

_FRAME = re.compile(r'File "[^"]*?((?:meshcast|tests)/[^"]+)", line (\d+)(?:, in | in )(\S+)')
_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|error|Iteration|Interrupt))\b", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`kind` is "ok", or what went wrong; `signature` tells one defect from another."""

    kind: str
    signature: str = ""

    @property
    def found(self) -> bool:
        """Whether something went wrong."""
        return self.kind != "ok"


def cpu_limit(size: int) -> float:
    """Seconds of CPU that an input of `size` bytes may take."""
    return CPU_SECONDS + CPU_SECONDS_PER_MIB * size / (1 << 20)


def judge(answer: Answer) -> Verdict:
    """The verdict on an answer, whose output must be JSON objects, one a line."""
    if answer.waited or answer.code == -signal.SIGPROF:
        return Verdict(kind="hang", signature=_innermost(answer.err))
    if answer.code < 0 or answer.code > 128:
        number = -answer.code if answer.code < 0 else answer.code - 128
        return Verdict(kind="crash", signature=f"{signal.Signals(number).name} {_innermost(answer.err)}".strip())
    if answer.code not in IN_ORDER:
        raised = _RAISED.findall(answer.err)
        frames = _FRAME.findall(answer.err)
        place = ":".join(frames[-1][:2]) if frames else "?"
        return Verdict(kind=f"exit {answer.code}", signature=f"{raised[-1] if raised else '?'} {place}")
    if "Traceback (most recent call last)" in answer.err:
        return Verdict(kind="traceback", signature=_innermost(answer.err))
    return _judge_json(answer)


def _judge_json(answer: Answer) -> Verdict:
    lines = answer.out.splitlines()
    if not lines:
        return Verdict(kind="no JSON", signature=f"exit {answer.code}")
    try:
        values = [json.loads(line, parse_constant=_refused) for line in lines]
    except ValueError as error:
        return Verdict(kind="bad JSON", signature=str(error)[:80])
    if not all(isinstance(value, dict) for value in values):
        return Verdict(kind="bad JSON", signature="no object")
    for value in values:
        seconds = value.get("step_time_s", value.get("time_s"))
        if isinstance(seconds, int | float) and not seconds >= 0:
            return Verdict(kind="nonsense", signature=f"{seconds} s")
    return Verdict(kind="ok")


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _innermost(err: str) -> str:
    """The innermost frame of ours: the first that faulthandler prints, the last that a traceback prints."""
    frames = _FRAME.findall(err)
    if not frames:
        return ""
    dumped = "most recent call first" in err
    found = next((f for f in (frames if dumped else frames[::-1]) if f[0].startswith("meshcast")), frames[0])
    return ":".join(found[:2])
