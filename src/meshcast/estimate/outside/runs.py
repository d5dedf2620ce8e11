"""Layers run by a simulator of others, one process each, answers kept on disk as soon as they are there.

Several run side by side. An interrupted run ends its processes, and the next one goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from meshcast.base import UnsupportedError, cache_folder, keep, kept_as, raising, tell
from meshcast.estimate.systolic import Layer, LayerResult

_FORMAT = 1  # of an entry in the cache
MOST_PROCESSES = 8
LONGEST_LINE = 300  # of what a simulator says when it fails


class ReportError(Exception):
    """A process left no report that can be read."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """A simulator of others, as it is run on one layer at a time; its answers are kept on disk.

    Attributes:
        title: What messages call it.
        python: Its Python; `process` is the script that it runs, on the names of the files of `texts`, in their folder.
        release: The release of the simulator; answers of another one are not looked at.
        texts: The files of a layer.
        read: The result from the folder in which the process ran.
    """

    name: str
    title: str
    python: Path
    process: Path
    release: str
    texts: Callable[[Layer], Mapping[str, str]]
    read: Callable[[Path, Layer], LayerResult]
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _processes: set[subprocess.Popen[str]] = field(default_factory=set, repr=False)
    _stopped: threading.Event = field(default_factory=threading.Event, repr=False)

    def all(self, layers: Sequence[Layer], size: Callable[[Layer], int]) -> list[LayerResult]:
        """Every layer's result, equal ones run once, the largest first so that none of them is left for the end.

        Raises:
            UnsupportedError: The simulator fails on a layer.
        """
        unique = list(dict.fromkeys(replace(layer, name="") for layer in layers))
        found = {layer: result for layer in unique if (result := self._kept(layer)) is not None}
        missing = sorted((layer for layer in unique if layer not in found), key=size, reverse=True)
        if missing:
            with raising():
                self._run_all(missing, found)
        return [replace(found[replace(layer, name="")], name=layer.name) for layer in layers]

    def _run_all(self, missing: list[Layer], found: dict[Layer, LayerResult]) -> None:
        pool = ThreadPoolExecutor(max_workers=min(len(missing), os.cpu_count() or 1, MOST_PROCESSES))
        try:
            futures: dict[Future[LayerResult], Layer] = {pool.submit(self._run, layer): layer for layer in missing}
            tell(f"{self.title}: 0 of {len(missing)} layers done")
            for done, future in enumerate(as_completed(futures), start=1):
                found[futures[future]] = future.result()
                tell(f"{self.title}: {done} of {len(missing)} layers done", done=done, total=len(missing))
        except BaseException:
            with self._lock:
                self._stopped.set()
                for process in self._processes:
                    process.kill()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _path(self, layer: Layer) -> Path:
        made_from = json.dumps([_FORMAT, self.release, dict(self.texts(layer))])
        return cache_folder(self.name) / f"{hashlib.sha256(made_from.encode()).hexdigest()}.json"

    def _kept(self, layer: Layer) -> LayerResult | None:
        return kept_as(self._path(layer), lambda data: LayerResult(**json.loads(data)))

    def _run(self, layer: Layer) -> LayerResult:
        with tempfile.TemporaryDirectory(prefix=f"meshcast-{self.name}-") as name:
            folder = Path(name)
            texts = self.texts(layer)
            for file, text in texts.items():
                (folder / file).write_text(text)
            # -I: the folder of our script, whose modules have names like its own, is not on its path.
            printed = self._finished([str(self.python), "-I", str(self.process), *texts], folder)
            try:
                result = self.read(folder, layer)
            except ReportError as error:
                lines = [line[:LONGEST_LINE] for line in printed.strip().splitlines() if line.strip()]
                raise UnsupportedError(
                    f"{self.title} failed on a product of {layer.m} x {layer.k} by {layer.k} x {layer.n}: "
                    + (" | ".join(lines[-2:]) or f"no report ({error})"),
                    where=self.title,
                    fix="use --simulator systolic",
                ) from error
        keep(self._path(layer), json.dumps(asdict(result)).encode())
        return result

    def _finished(self, command: list[str], folder: Path) -> str:
        """Runs a process to its end; what it printed, for an error."""
        with self._lock:
            if self._stopped.is_set():
                raise UnsupportedError(f"{self.title} was stopped")
            process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
            self._processes.add(process)
        try:
            printed, _ = process.communicate()
        finally:
            with self._lock:
                self._processes.discard(process)
        return printed if process.returncode == 0 else f"{printed}\nexit code {process.returncode}"
