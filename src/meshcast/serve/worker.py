"""A worker of the page: answers one question at a time in a process of its own, which may die of what it is asked.

A question is one JSON object, and a program's bytes where it has some; an answer is a line of JSON that says how it went, and
what the page gets. Names are looked up in the catalogues and nowhere else: the process stands in an empty folder, no path comes
from a request, and nothing of a request is run. What answers need is imported with the first that needs it.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import sys
import tempfile
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshcast.base import BugError, MeshcastError, UsageError, listening, piece, serve, write_whole
from meshcast.serve.pool import error_body
from meshcast.serve.usual import USUAL
from meshcast.serve.wording import on_the_page

if TYPE_CHECKING:
    from meshcast.serve.messages import AnswerPart

WARMING_UP = "llama3-tiny"
# What to change where an error does not say it: the messages of parsers, which say where they stopped, and why.
_FIXES = {
    "unreadable-input": "have it written again, whole, by the tool that made it",
    "unsupported": "leave out what is named, or choose other hardware",
    "usage": "change what is named: /api/openapi.json says what is taken",
    "infeasible": "choose more devices, a smaller batch or another plan",
}
HELD = 4  # programs that a worker has read and keeps


class PageWorker:
    """What one worker keeps from question to question."""

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._programs: OrderedDict[str, Any] = OrderedDict()

    def answer(self, question: Mapping[str, Any], data: bytes) -> bytes:
        """The answer to a question; what is wrong with it is an answer too."""
        try:
            with listening(lambda text: _note(question.get("progress"), text)):
                kind, body = self._answers()[question["kind"]](question, data)
        except MeshcastError as error:
            error.fix = error.fix or _FIXES.get(error.code)
            return _told({"ok": False}, json.dumps(on_the_page(error.to_json())).encode())
        except MemoryError:
            said = "needs more memory than a worker may have"
            body = error_body("memory-limit", said, fix="the command line has no limit")
            return _told({"ok": False, "lasting": False}, body)
        except Exception as error:  # a bug of ours, which the server's log has whole
            traceback.print_exc()
            bug = BugError(f"{type(error).__name__}: {error}".splitlines()[0][:300])
            return _told({"ok": False, "bug": True}, json.dumps(bug.to_json()).encode())
        return _told({"ok": True, "type": kind}, body)

    def _answers(self) -> dict[str, Callable[[Mapping[str, Any], bytes], tuple[str, bytes]]]:
        return {
            "catalogue": lambda question, data: self._catalogue(),
            "choices": lambda question, data: self._choices(question["asked"]),
            "predict": lambda question, data: _as_json(self._prediction(question["asked"], data)),
            "sections": lambda question, data: _as_json(self._sections(question, data)),
            "report": lambda question, data: self._report(question["asked"], question["command"], data),
            "folder": lambda question, data: self._report_of(Path(question["folder"])),
            "program": lambda question, data: _as_json(self._described(question["name"], data)),
            "warm": lambda question, data: self._warm(question["step"]),
        }

    def _catalogue(self) -> tuple[str, bytes]:
        from meshcast.serve.catalogue import catalogue_answer

        return _as_json(catalogue_answer())

    def _choices(self, asked: Mapping[str, Any]) -> tuple[str, bytes]:
        from meshcast.serve.catalogue import choices_answer

        return _as_json(choices_answer(asked, self._folder))

    def _warm(self, step: int) -> tuple[str, bytes]:
        """Does what the first prediction would have to do first: a page that is opened then finds it done."""
        if step:
            asked = {"on": "h100-sxm", "plan": "fsdp=2", "settings": {"batch": "2"}, "lowering": "modelled"}
            self._drawn(WARMING_UP, {**asked, "levers": False}, "summary", ())
        else:
            import jax  # noqa: F401  # two seconds of it

            self._catalogue()
        return _as_json({})

    def _prediction(self, asked: Mapping[str, Any], data: bytes) -> dict[str, Any]:
        from meshcast.jobs import predict

        target, options = self._asked(asked, data)
        return predict(target, **options).to_json()

    def _sections(self, question: Mapping[str, Any], data: bytes) -> dict[str, Any]:
        target, options = self._asked(question["asked"], data)
        return self._drawn(target, options, question["part"], question["command"])

    def _drawn(
        self, target: Any, options: Mapping[str, Any], part: AnswerPart, command: Sequence[str]
    ) -> dict[str, Any]:
        from meshcast.jobs import chosen_options, predict_with_job
        from meshcast.report import subject_of
        from meshcast.serve.sections import sections_answer

        with piece("1 of 2", done=0, total=2):
            prediction, job = predict_with_job(target, chosen_options(None, options, where="sections"))
        with piece("2 of 2", done=1, total=2):
            return sections_answer(subject_of(prediction, job, command=shlex.join(command)), part)

    def _report(self, asked: Mapping[str, Any], command: list[str], data: bytes) -> tuple[str, bytes]:
        from meshcast.report import write_report

        target, options = self._asked(asked, data)
        out = self._folder / "report.html"
        write_report(target, out, command=command, **options)
        return "text/html", out.read_bytes()

    def _report_of(self, run: Path) -> tuple[str, bytes]:
        """The report of a run folder, which the server has looked up by its name."""
        from meshcast.report import write_report

        out = self._folder / "report.html"
        write_report(run, out, command=["meshcast", "report", run.name])
        return "text/html", out.read_bytes()

    def _asked(self, asked: Mapping[str, Any], data: bytes) -> tuple[Any, dict[str, Any]]:
        """The target of a configuration, and the options that are asked for."""
        from meshcast.serve.questions import builder_target, with_known_names

        asked = with_known_names(asked)
        # What is as usual is not said: predictions tell what was asked for from what was left open.
        options: dict[str, Any] = {"on": asked["on"], "levers": asked["levers"]}
        options |= {name: asked[name] for name, usual in USUAL.items() if asked[name] != usual}
        for name in ("devices", "mesh", "stack"):
            if asked[name]:
                options[name] = asked[name]
        if asked["program"] is not None:
            for name in ("plan", "settings"):
                if asked[name]:
                    raise UsageError(f"a program has no {name}", where=name, fix="leave it out; mesh gives other sizes")
            return self._program(asked["program_name"], asked["program"], data), options
        options |= {"settings": dict(asked["settings"])} | ({"plan": asked["plan"]} if asked["plan"] else {})
        return builder_target(asked, self._folder), options

    def _program(self, name: str, digest: str, data: bytes) -> Any:
        from meshcast.serve.questions import program_of

        if digest not in self._programs:
            self._programs[digest] = program_of(data, name)
        self._programs.move_to_end(digest)
        while len(self._programs) > HELD:
            self._programs.popitem(last=False)
        return self._programs[digest]

    def _described(self, name: str, data: bytes) -> dict[str, Any]:
        from meshcast.serve.questions import program_of

        program = program_of(data, name)
        mesh = dict(program.mesh.axes) if program.mesh is not None else {}
        return {"name": name, "devices": program.devices, "mesh": mesh, "bytes": len(data)}


def _told(how: dict[str, Any], body: bytes) -> bytes:
    return json.dumps({**how, "resident": _resident()}).encode() + b"\n" + body


def _resident() -> int:
    """Bytes of memory that this process holds: what it keeps of programs, and what Python gives back late or never."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:  # not on Linux: the most that it ever held, in bytes there
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _as_json(value: dict[str, Any]) -> tuple[str, bytes]:
    return "application/json", json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _note(place: str | None, text: str) -> None:
    """Leaves word of how far the work is where the server looks for it."""
    if place:
        write_whole(Path(place), text)


def work(kind: type[PageWorker], *, memory_bytes: int, folder: str) -> None:
    """Answers questions until the server closes the pipe, in an empty folder.

    That lies in the server's own, which takes it away: a worker is killed, and takes nothing away itself.
    """
    with tempfile.TemporaryDirectory(prefix="page-", dir=folder) as empty:
        os.chdir(empty)
        serve(kind().answer, memory_bytes=memory_bytes)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    # As the command has it, so that both give the same numbers to the last bit.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    work(PageWorker, memory_bytes=int(sys.argv[1]), folder=sys.argv[2])
