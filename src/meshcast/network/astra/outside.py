"""ASTRA-sim itself, where its programs are on the PATH: one collective exported, run in a process of its own, read back."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from meshcast.base import UnsupportedError
from meshcast.chakra import COLLECTIVE_CODES, Node, NodeType, rank_path, trace_bytes
from meshcast.hardware import AstraNetwork
from meshcast.network.astra.config import ASTRA_BACKENDS, AstraBackend, AstraKind, AstraSystem, implementations
from meshcast.network.astra.files import RemoteMemory, write_inputs
from meshcast.network.astra.program_files import ASTRA_SIM_PROGRAMS, HOW_TO_GET_ASTRA_SIM, program_path

TIMEOUT_S = 600.0
LONGEST_LINE = 300  # of what ASTRA-sim says when it fails
_FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles")


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraRun:
    """What ASTRA-sim answered: nanoseconds (its "cycles") at which each NPU was done."""

    finished_ns: tuple[int, ...]

    @property
    def finish_ns(self) -> int:
        """When the last one was."""
        return max(self.finished_ns)

    @property
    def seconds(self) -> float:
        """When the last one was."""
        return self.finish_ns * 1e-9


def astra_available() -> dict[AstraBackend, Path]:
    """ASTRA-sim's programs on the PATH, by backend."""
    return {backend: path for backend in ASTRA_BACKENDS if (path := program_path(backend))}


def run_collective(
    network: AstraNetwork, system: AstraSystem, kind: AstraKind, size: int, backend: AstraBackend = "Unaware", *,
    memory: RemoteMemory | None = None, timeout_s: float = TIMEOUT_S,
) -> AstraRun:  # fmt: skip
    """ASTRA-sim's own answer for one collective over all NPUs.

    The files lie in a folder that is gone afterwards, and so is the process, also where Ctrl-C ends the wait.

    Args:
        network: Its dimensions.
        system: Algorithms, chunks, delays.
        kind: The collective.
        size: Bytes as ASTRA-sim counts them, see `finish_ns`.
        backend: Which of its programs.
        memory: Remote memory; none by default.
        timeout_s: Longest wait.

    Raises:
        UsageError: Network and system do not go together.
        UnsupportedError: The program is not there, fails, or has no answer in time.
    """
    implementations(network, system, kind)  # ASTRA-sim itself would crash or wait for ever
    with tempfile.TemporaryDirectory(prefix="meshcast-astra-") as name:
        prefix = Path(name) / "collective"
        write_traces(prefix, network.npus, [collective_node(kind, size)])
        return run_traces(prefix, network, system, backend, memory=memory, timeout_s=timeout_s)


def run_traces(
    prefix: Path, network: AstraNetwork, system: AstraSystem, backend: AstraBackend = "Unaware", *,
    groups: Path | None = None, memory: RemoteMemory | None = None, timeout_s: float = TIMEOUT_S,
) -> AstraRun:  # fmt: skip
    """ASTRA-sim's own answer for the traces of all NPUs, `PREFIX.RANK.et`.

    Args:
        prefix: The prefix of the traces.
        network: Its dimensions.
        system: Algorithms, chunks, delays.
        backend: Which of its programs.
        groups: Its file of communicator groups.
        memory: Remote memory; none by default.
        timeout_s: Longest wait.

    Raises:
        UnsupportedError: The program is not there, fails, or has no answer in time.
    """
    program = program_path(backend)
    if program is None:
        raise UnsupportedError(
            f"{ASTRA_SIM_PROGRAMS[backend]} is not on the PATH", where="astra-sim", fix=HOW_TO_GET_ASTRA_SIM
        )
    with tempfile.TemporaryDirectory(prefix="meshcast-astra-") as name:
        folder = Path(name)
        flags = {"workload-configuration": prefix, **write_inputs(folder, network, system, memory or RemoteMemory())}
        if groups is not None:
            flags["comm-group-configuration"] = groups
        command = [str(program), *(f"--{flag}={path.absolute()}" for flag, path in flags.items())]
        return _read(_printed(command, folder, timeout_s), network.npus)


def run_alone(
    prefix: Path, network: AstraNetwork, system: AstraSystem, backend: AstraBackend = "Unaware", *,
    memory: RemoteMemory | None = None, timeout_s: float = TIMEOUT_S,
) -> AstraRun:  # fmt: skip
    """ASTRA-sim's own answer for the one trace of a job of one rank, `PREFIX.0.et`.

    ASTRA-sim refuses networks of one NPU (`NetworkParser::check_validity`). So every NPU of a network of some runs that
    trace, and as it has nothing to communicate, each takes as long as one alone.

    Raises:
        UnsupportedError: The program is not there, fails, or has no answer in time.
    """
    with tempfile.TemporaryDirectory(prefix="meshcast-astra-") as name:
        beside = Path(name) / "alone"
        rank_path(beside, 0).symlink_to(rank_path(prefix, 0).absolute())
        _same_for_others(beside, network.npus)
        return run_traces(beside, network, system, backend, memory=memory, timeout_s=timeout_s)


def collective_node(kind: AstraKind, size: int) -> Node:
    """The node of a collective over all NPUs."""
    attributes = {"is_cpu_op": False, "comm_type": int(COLLECTIVE_CODES[kind]), "comm_size": size}
    return Node(number=1, name=kind, kind=NodeType.COLLECTIVE, attributes=attributes)


def write_traces(prefix: Path, npus: int, nodes: list[Node]) -> None:
    """Writes `PREFIX.RANK.et` for every rank, all with the same nodes: one file under as many names."""
    rank_path(prefix, 0).write_bytes(trace_bytes(nodes))
    _same_for_others(prefix, npus)


def _same_for_others(prefix: Path, npus: int) -> None:
    first = rank_path(prefix, 0)
    for rank in range(1, npus):
        other = rank_path(prefix, rank)
        other.unlink(missing_ok=True)  # of an earlier export
        other.symlink_to(first.name)


def _printed(command: list[str], folder: Path, timeout_s: float) -> str:
    try:
        # Whatever ends the wait, Ctrl-C too, ends the process.
        ended = subprocess.run(
            command, cwd=folder, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UnsupportedError(
            f"no answer after {timeout_s:g} s", where="astra-sim", fix="use fewer NPUs or chunks, or --network astra"
        ) from None
    if ended.returncode:
        raise UnsupportedError(f"exit code {ended.returncode}: {_tail(ended.stdout)}", where="astra-sim")
    return ended.stdout


def _read(printed: str, npus: int) -> AstraRun:
    finished = {int(npu): int(cycles) for npu, cycles in _FINISHED.findall(printed)}
    if missing := [npu for npu in range(npus) if npu not in finished]:
        raise UnsupportedError(
            f"{len(missing)} of {npus} NPUs never finished, NPU {missing[0]} first: {_tail(printed)}", where="astra-sim"
        )
    return AstraRun(finished_ns=tuple(finished[npu] for npu in range(npus)))


def _tail(printed: str) -> str:
    lines = [line[:LONGEST_LINE] for line in printed.splitlines() if line.strip()]
    return " | ".join(lines[-2:]) or "it said nothing"
