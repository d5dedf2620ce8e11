"""SCALE-Sim itself, as a process a layer: writes its files, runs it, reads its report, keeps the answer on disk.

Equal layers are run once. Several run side by side; a layer that is done is kept at once, so that an interrupted run goes on
where it stopped.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from meshcast.cache import cache_folder, keep, kept
from meshcast.errors import UnsupportedError
from meshcast.progress import tell
from meshcast.simulators.environment import SCALESIM
from meshcast.systolic import Layer, LayerResult, SystolicArray
from meshcast.systolic.files import config_text, layout_text, topology_text
from meshcast.systolic.scratchpads import Lie

_FORMAT = 1  # of an entry in the cache
_PROCESS = Path(__file__).with_name("_scalesim_process.py")
# SCALE-Sim holds every word that every cycle wants, 8 bytes each and some of them several times: 3e8 words are about 10 GB
# and an hour.
MOST_WORDS = 300_000_000
MOST_PROCESSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSim:
    """The package `scalesim` behind the same call as our own model."""

    name: str = "scalesim"

    def simulate(self, layers: Sequence[Layer], array: SystolicArray) -> list[LayerResult]:
        """SCALE-Sim's report of every layer.

        Raises:
            UnsupportedError: It is not installed, a layer is too large for it, or it fails on one.
        """
        python, release = SCALESIM.ready()
        unique = {replace(layer, name=""): layer.name for layer in layers}
        for layer, name in unique.items():
            _check_size(replace(layer, name=name), array)
        found = _Runs(python, release, array).all(list(unique))
        return [replace(found[replace(layer, name="")], name=layer.name) for layer in layers]


def demanded_words(layer: Layer, array: SystolicArray) -> int:
    """Words that all cycles of a layer have room for: what SCALE-Sim's memory and time grow with."""
    return Lie.of(layer, array).cycles * (array.rows + 2 * array.columns)


def _check_size(layer: Layer, array: SystolicArray) -> None:
    words = demanded_words(layer, array)
    if words > MOST_WORDS:
        raise UnsupportedError(
            f"SCALE-Sim would have to hold {words:.2g} words for a product of {layer.m} x {layer.k} by {layer.k} x "
            f"{layer.n} on {array.rows} x {array.columns} cells; the limit is {MOST_WORDS:.2g}",
            where=layer.name or "layer",
            fix="use --simulator systolic, which counts the same cycles in closed form",
        )


class _Runs:
    """Layers being run, one process each; all of them end with this object's work."""

    def __init__(self, python: Path, release: str, array: SystolicArray) -> None:
        self._python, self._release, self._array = python, release, array
        self._config = config_text(array)
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def all(self, layers: list[Layer]) -> dict[Layer, LayerResult]:
        """Every layer's result; what is kept is not run again."""
        found = {layer: result for layer in layers if (result := self._kept(layer)) is not None}
        missing = [layer for layer in layers if layer not in found]
        if not missing:
            return found
        # The longest first, so that none of them is left for the end.
        missing.sort(key=lambda layer: -demanded_words(layer, self._array))
        pool = ThreadPoolExecutor(max_workers=min(len(missing), os.cpu_count() or 1, MOST_PROCESSES))
        try:
            futures: dict[Future[LayerResult], Layer] = {pool.submit(self._run, layer): layer for layer in missing}
            tell(f"SCALE-Sim: 0 of {len(missing)} layers done")
            for done, future in enumerate(as_completed(futures), start=1):
                found[futures[future]] = future.result()
                tell(f"SCALE-Sim: {done} of {len(missing)} layers done")
        except BaseException:
            self._stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return found

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._processes:
                process.kill()

    def _path(self, layer: Layer) -> Path:
        made_from = json.dumps([_FORMAT, self._release, self._config, topology_text([layer])])
        return cache_folder("scalesim") / f"{hashlib.sha256(made_from.encode()).hexdigest()}.json"

    def _kept(self, layer: Layer) -> LayerResult | None:
        data = kept(self._path(layer))
        return LayerResult(**json.loads(data)) if data is not None else None

    def _run(self, layer: Layer) -> LayerResult:
        with tempfile.TemporaryDirectory(prefix="meshcast-scalesim-") as name:
            folder = Path(name)
            texts = {
                "config.cfg": self._config,
                "topology.csv": topology_text([layer]),
                "layout.csv": layout_text([layer]),
            }
            for file, text in texts.items():
                (folder / file).write_text(text)
            errors = self._finished([str(self._python), "-I", str(_PROCESS), *texts, "out"], folder)
            result = _read_report(folder / "out" / "meshcast" / "COMPUTE_REPORT.csv", layer, errors)
        keep(self._path(layer), json.dumps({name: getattr(result, name) for name in result.__slots__}).encode())
        return result

    def _finished(self, command: list[str], folder: Path) -> str:
        """Runs a process to its end; what it printed, for an error."""
        with self._lock:
            if self._stopped:
                raise UnsupportedError("SCALE-Sim was stopped")
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(
                command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            self._processes.add(process)
        try:
            printed, _ = process.communicate()
        finally:
            with self._lock:
                self._processes.discard(process)
        return printed if process.returncode == 0 else f"{printed}\nexit code {process.returncode}"


def _read_report(path: Path, layer: Layer, printed: str) -> LayerResult:
    try:
        with path.open(newline="") as file:
            rows = list(csv.reader(file, skipinitialspace=True))
        overall, total, stalls = (int(float(cell)) for cell in rows[1][1:4])
        shares = [float(cell) / 100 for cell in rows[1][4:7]]
    except (OSError, IndexError, ValueError) as error:
        lines = [line for line in printed.strip().splitlines() if line.strip()]
        raise UnsupportedError(
            f"SCALE-Sim failed on a product of {layer.m} x {layer.k} by {layer.k} x {layer.n}: "
            + (" | ".join(lines[-2:]) or f"no report ({error})"),
            where=layer.name or "SCALE-Sim",
            fix="use --simulator systolic",
        ) from error
    return LayerResult(
        name="", compute_cycles=total - stalls, stall_cycles=stalls, total_cycles=total, cycles_with_prefetch=overall,
        utilisation=shares[0], mapping_efficiency=shares[1], compute_utilisation=shares[2],
    )  # fmt: skip
