"""Searches that the page starts, and runs that lie in the runs folder: its own, and those of `explore` and `compare`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from meshcast.base import InputError, UsageError, child_environment, python_command, write_whole
from meshcast.explore import read_points
from meshcast.report import is_comparison
from meshcast.serve.compared import changed_at, comparison_listed
from meshcast.serve.limits import ServeLimits
from meshcast.serve.messages import ErrorBody, SearchRequest, SearchState
from meshcast.serve.pool import BusyError
from meshcast.serve.wording import on_the_page
from meshcast.zoo import Plan

STOP = signal.SIGTERM  # a search inherits what the server ignores: SIGINT, where a script started it in the background

PROCESS = "meshcast.serve.search_process"
ENVIRONMENT, SUMMARY, SPACE = "environment.json", "summary.json", "space.toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
STOPPED = 130
CONFIG, CONFIG_BYTES = ".config.json", 65536  # beside the folder of a run; as long as a request's may be
_OF_A_ROW = ("on", "devices", "plan", "settings")  # of what a point asks: a row has them by themselves
_SPACE_CHARACTERS = 65536
_LISTED = 200  # runs in a list, the newest first


@dataclass(slots=True, kw_only=True)
class RunningSearch:
    """A search that the page has started.

    Attributes:
        name: Of its folder.
        title: What is searched for.
        process: That does it.
        folder: Where its points go.
        progress: Where it says how far it is.
        output: Where its error goes.
        started: When it was.
        ended: When that was seen.
        told: Whether it was told to stop: however it ends then, it was stopped (a library that loads may lose the signal).
    """

    name: str
    title: str
    process: subprocess.Popen[bytes]
    folder: Path
    progress: Path
    output: Path
    objectives: list[str]
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    told: bool = False

    def let_go(self) -> None:
        """Closes the pipe that its process has seen us by."""
        if self.process.stdin is not None:
            self.process.stdin.close()


class SearchDesk:
    """Starts, watches and stops searches, and reads earlier ones.

    Args:
        runs: The folder with run folders.
        scratch: A folder of the server's own.
        limits: Of the server.
        workers: Processes of one search.
    """

    def __init__(self, runs: Path, scratch: Path, limits: ServeLimits, *, workers: int = 1) -> None:
        self._workers = workers
        self._runs = runs
        self._scratch = scratch
        self._limits = limits
        self._running: dict[str, RunningSearch] = {}
        self._lock = threading.Lock()

    def start(self, asked: SearchRequest) -> SearchState:
        """Starts a search.

        Raises:
            BusyError: As many run as may.
            UsageError: The plan is none.
        """
        with self._lock:
            if sum(each.process.poll() is None for each in self._running.values()) >= self._limits.searches:
                raise BusyError
            self._runs.mkdir(parents=True, exist_ok=True)
            name = self._free_name(asked.model or "config")
            model = asked.model
            if asked.config is not None:
                # Beside the folder: whoever goes on with the run by the command line finds it there.
                place = self._beside(self._runs / name)
                write_whole(place, asked.config)
                model = str(place.resolve())
            space = self._scratch / f"{name}.toml"
            write_whole(space, space_text(asked, str(model)))
            progress, output = self._scratch / f"{name}.progress", self._scratch / f"{name}.out"
            folder = self._runs / name
            with output.open("wb") as out:
                process = subprocess.Popen(
                    python_command(PROCESS, str(space), str(folder), str(progress), str(self._workers)),
                    stdin=subprocess.PIPE, stdout=out, env=child_environment(), start_new_session=True,
                )  # fmt: skip
            title = _title(asked.model or "config.json", asked.devices, asked.on)
            self._running[name] = RunningSearch(
                name=name, title=title, process=process, folder=folder, progress=progress, output=output,
                objectives=list(asked.objectives),
            )  # fmt: skip
        return self.state(name)

    def stop(self, name: str) -> SearchState:
        """Asks a search to end; it keeps what it has found.

        Raises:
            KeyError: There is none of that name.
        """
        search = self._running[name]
        if search.process.poll() is None:
            search.told = True
            search.process.send_signal(STOP)
        return self.state(name)

    def state(self, name: str) -> SearchState:
        """How far a search is, or what an earlier run has found.

        Raises:
            KeyError: There is none of that name.
        """
        search = self._running.get(name)
        folder = self._folder(name) if search is None else search.folder
        if search is None and is_comparison(folder):
            listed = comparison_listed(folder)
            return SearchState(
                name=name, kind="comparison", state=listed["state"], seconds=0.0, title=listed["title"],
                found=listed["evaluated"] or 0,
            )  # fmt: skip
        rows = list(self._rows(folder))
        title = _told_by(folder) if search is None else search.title
        summary = _json_file(folder / SUMMARY)
        common: dict[str, Any] = {
            "name": name, "found": len(rows), "points": rows[-self._limits.points :], "summary": summary, "title": title,
        }  # fmt: skip
        if search is None:
            objectives = list(summary.get("objectives", ["time"])) if summary else ["time"]
            return SearchState(state=_ended(summary), seconds=0.0, objectives=objectives, **common)
        code = search.process.poll()
        if code and search.told:
            code = STOPPED
        if code is not None and search.ended is None:
            search.ended = time.monotonic()
            search.let_go()
        far = _json_file(search.progress) or {}
        return SearchState(
            state="running" if code is None else "done" if code == 0 else "stopped" if code == STOPPED else "failed",
            seconds=(search.ended or time.monotonic()) - search.started,
            said=str(far.get("said") or ""),
            share=far.get("share"),
            objectives=search.objectives,
            error=_error(search, code),
            **common,
        )

    def listed(self) -> list[dict[str, Any]]:
        """Runs, the newest first."""
        found = []
        for folder in self._runs.iterdir() if self._runs.is_dir() else ():
            search = self._running.get(folder.name)
            if not NAME.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
                continue
            if is_comparison(folder):
                found.append(comparison_listed(folder))
                continue
            if not (folder / ENVIRONMENT).is_file():
                continue
            running = search is not None and search.process.poll() is None
            summary = None if running else _json_file(folder / SUMMARY)
            best = (summary or {}).get("best") or [{}]
            found.append(
                {
                    "name": folder.name,
                    "kind": "exploration",
                    "state": "running" if running else _ended(summary),
                    "changed": changed_at(folder),
                    "title": _told_by(folder) if search is None else search.title,
                    "evaluated": (summary or {}).get("evaluated"),
                    "best": {name: best[0].get(name) for name in ("plan", "on", "devices", "step_time_s", "mfu")},
                }
            )
        return sorted(found, key=lambda each: str(each["changed"]), reverse=True)[:_LISTED]

    def close(self) -> None:
        """Ends searches that run; their points are kept, and can be gone on with."""
        for search in self._running.values():
            if search.process.poll() is None:
                search.process.send_signal(STOP)
        for search in self._running.values():
            try:
                search.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(search.process.pid, signal.SIGKILL)
            search.let_go()

    def folder(self, name: str) -> tuple[Path, float]:
        """Where a run lies, and when something in it has changed last.

        Raises:
            KeyError: There is none of that name.
        """
        folder = self._folder(name)
        return folder.resolve(), max(each.stat().st_mtime for each in folder.iterdir())

    def config(self, name: str) -> str:
        """The configuration that a run was started over: the file that lies beside its folder, and no other.

        Raises:
            KeyError: There is no run of that name, or none lies beside it.
            InputError: It is larger than one that the page takes.
        """
        place = self._beside(self._running[name].folder if name in self._running else self._folder(name))
        try:
            if place.is_symlink() or not place.is_file():
                raise KeyError(name)
            with place.open("rb") as file:
                data = file.read(CONFIG_BYTES + 1)
            if len(data) > CONFIG_BYTES:
                raise InputError(f"is larger than {CONFIG_BYTES} bytes", where=place.name)
            return data.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            raise KeyError(name) from None

    @staticmethod
    def _beside(folder: Path) -> Path:
        return folder.with_name(f"{folder.name}{CONFIG}")

    def _free_name(self, model: str) -> str:
        stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{model}"
        name, number = stem, 1
        while (self._runs / name).exists() or name in self._running:
            number += 1
            name = f"{stem}-{number}"
        return name

    def _folder(self, name: str) -> Path:
        """The folder of a run: one that lies in the runs folder itself, whatever its name says."""
        folder = self._runs / name
        known = NAME.fullmatch(name) and folder.is_dir() and not folder.is_symlink()
        if not known or not ((folder / ENVIRONMENT).is_file() or is_comparison(folder)):
            raise KeyError(name)
        return folder

    def _rows(self, folder: Path) -> Iterator[dict[str, Any]]:
        try:
            for point, outcome in read_points(folder):
                row = {"number": point.number, **point.columns(), **outcome.columns()}
                yield row | {
                    "target": _called(point.target, folder.name),
                    "own_config": _is_path(point.target),
                    "asked": {name: value for name, value in point.asked.items() if name not in _OF_A_ROW},
                }
        except InputError:
            return


def space_text(asked: SearchRequest, model: str) -> str:
    """The space of a request, as a file of `meshcast explore` has it.

    Raises:
        UsageError: The keys that are decided are no plan's.
    """
    lines = ['schema = "meshcast.space/1"', f"model = {_toml(model)}", f"on = {_toml(asked.on)}"]
    lines += [f"devices = {_toml(asked.devices)}", "", "[set]"]
    lines += [f"{_toml(name)} = {_toml(text)}" for name, text in asked.settings.items()]
    lines += ["", "[options]", *(f"{name} = {_toml(value)}" for name, value in asked.said().items()), "", "[plan]"]
    fixed = Plan.parse(asked.fixed) if asked.fixed else None
    names = Plan.names_in(asked.fixed) if asked.fixed else ()
    if fixed is not None and "stack" in names:
        raise UsageError("stack is no key to fix here", where="fixed", fix="leave it out")
    for name in names:
        value = getattr(fixed, name)
        lines.append(f"{name.replace('_', '-')} = {_toml(value if isinstance(value, (int, bool)) else str(value))}")
    lines += ["", "[want]", f"objectives = {_toml(list(asked.objectives))}", f"top = {asked.top}"]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value of TOML: for texts, numbers and lists of them that is JSON; one alone needs no list."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0] if not isinstance(value[0], str) or value[0] else value
    return json.dumps(value)


def _ended(summary: dict[str, Any] | None) -> Literal["done", "stopped"]:
    """How a run that runs no more has ended: without a summary it was cut off."""
    return "stopped" if summary is None or summary.get("interrupted", False) else "done"


def _told_by(folder: Path) -> str:
    """What a run was about, by its space: the same words before and after it is done, whoever has started it."""
    try:
        space = tomllib.loads(_text(folder / SPACE, _SPACE_CHARACTERS))
    except tomllib.TOMLDecodeError:
        return ""
    model, devices, on = (_several(space.get(name)) for name in ("model", "devices", "on"))
    return _title(" or ".join(_called(str(each), folder.name) for each in model), devices, on)[:200]


def _title(model: str, devices: list[Any], on: list[Any]) -> str:
    counts = " or ".join(f"{count:,}" if isinstance(count, int) else str(count) for count in devices)
    machines = ", ".join(Path(each).name if _is_path(each) else each for each in map(str, on))
    return f"{model} on {counts} of {machines}" if counts else f"{model} on {machines}" if machines else model


def _several(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _is_path(target: str) -> bool:
    """Whether a model is a file of somebody's: names of Hugging Face have separators too."""
    return target.startswith(("/", ".", "~")) or target.endswith((".json", ".toml", ".py"))


def _called(target: str, run: str) -> str:
    """A model as the page calls it: no place of this machine."""
    if not _is_path(target):
        return target
    name = Path(target).name
    return CONFIG.removeprefix(".") if name == f"{run}{CONFIG}" else name


def _error(search: RunningSearch, code: int | None) -> ErrorBody | None:
    if code in (None, 0, STOPPED):
        return None
    said = _json_file(search.output)
    if said is not None and "error" in said:
        return ErrorBody(**on_the_page(said)["error"])
    return ErrorBody(code="search-died", message=f"the search's process has ended with {code}")


def _text(path: Path, most: int = 4000) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""


def _json_file(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
