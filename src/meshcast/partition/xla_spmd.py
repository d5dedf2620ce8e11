"""Partitioning with XLA's own SPMD partitioner, to check Shardy's route against: slower, but what really runs.

A child process compiles the program for as many virtual CPU devices as the mesh has (tried up to 2,048) and is killed
once XLA has dumped the partitioned program: about a second. `programs.hlo_text.to_stablehlo` reads the result.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from pathlib import Path

from meshcast.base import InputError, UnsupportedError, UsageError, child_environment, python_command

MAX_DEVICES = 4096
_POLL_S = 0.02
_AFTER_PARTITIONING = "*.after_spmd-partitioning.*.txt"
_LOG_LINE = re.compile(r"^[IW]\d{4} ")
_XLA_ERROR = re.compile(r"JaxRuntimeError: ([A-Z_]+: .*)")
_UNREADABLE = ("INVALID_ARGUMENT", "UNKNOWN")  # the verifier's and the MLIR parser's words


def partition(program: bytes | str, *, devices: int, timeout_s: float = 300.0, where: str = "program") -> str:
    """The program of one device with explicit collectives, as HLO text.

    Args:
        program: StableHLO with Shardy or GSPMD shardings over `devices` devices: MLIR bytecode or text, lowered for any
            platform.
        devices: Size of the mesh.
        timeout_s: The child is ended after this long.
        where: The program's origin, for error messages.

    Raises:
        InputError: XLA cannot read or verify the program.
        UnsupportedError: XLA crashed, could not partition the program, or took too long.
    """
    if not 2 <= devices <= MAX_DEVICES:
        raise UsageError(
            f"XLA's partitioner is run for 2 to {MAX_DEVICES} virtual devices, not {devices}",
            where=where,
            fix="partition with Shardy, which takes any number",
        )
    data = program.encode() if isinstance(program, str) else program
    with tempfile.TemporaryDirectory(prefix="meshcast-spmd-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "program").write_bytes(data)
        with (folder / "errors").open("wb") as errors:
            child = subprocess.Popen(
                python_command("meshcast.partition._xla_spmd_child", str(folder / "program"), str(devices)),
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                cwd=folder,
                env=_environment(folder / "dump", devices),
            )
        try:
            text = _awaited_dump(child, folder / "dump", deadline=time.monotonic() + timeout_s)
            late = child.poll() is None
        finally:
            child.kill()
            child.communicate()
        if text is not None:
            return text
        output = (folder / "errors").read_text(errors="replace")
    if late:
        raise UnsupportedError(
            f"XLA's partitioner took longer than {timeout_s:g} s for {devices} devices",
            where=where,
            fix="allow it more time, check at fewer devices, or partition with Shardy",
        )
    raise _failure(output, child.returncode, where)


def _environment(dump: Path, devices: int) -> dict[str, str]:
    """The child's environment; the user's own XLA flags are left out, they are meant for another backend."""
    flags = {
        "xla_force_host_platform_device_count": str(devices),
        "xla_dump_to": str(dump),
        "xla_dump_hlo_as_text": "true",
        "xla_dump_hlo_pass_re": "spmd-partitioning",
    }
    return {
        **child_environment(),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XLA_FLAGS": " ".join(f"--{key}={value}" for key, value in flags.items()),
    }


def _awaited_dump(child: subprocess.Popen[bytes], dump: Path, *, deadline: float) -> str | None:
    """The partitioned program as soon as it is written in full; None when the child ends or time runs out first."""
    while time.monotonic() < deadline:
        ended = child.poll() is not None  # asked before looking: what is there after the end is all there will be
        for path in dump.glob(_AFTER_PARTITIONING):
            text = path.read_text(errors="replace")
            if _is_complete(text):
                return text
        if ended:
            return None
        time.sleep(_POLL_S)
    return None


def _is_complete(text: str) -> bool:
    """True when the entry computation, which XLA prints last, is closed."""
    entry = text.rfind("\nENTRY ")
    return entry >= 0 and "\n}" in text[entry:]


def _failure(output: str, code: int, where: str) -> InputError | UnsupportedError:
    """What the child's last words mean."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not _LOG_LINE.match(line)]
    reported = _XLA_ERROR.findall(output)
    if reported and reported[-1].startswith(_UNREADABLE):
        return InputError(
            f"XLA cannot take this program: {reported[-1]}",
            where=where,
            fix="check that it is StableHLO, and that its mesh has as many devices as were asked for",
        )
    last = reported[-1] if reported else " | ".join(lines[-3:]) or "without a message"
    if code == 0:
        last = "it compiled, but no partitioned program was dumped"
    return UnsupportedError(
        f"XLA's partitioner failed on this program (exit {code}): {last}", where=where, fix="partition with Shardy"
    )
