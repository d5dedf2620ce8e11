"""Simulators that cannot live beside meshcast: each in a Python environment of its own, called as a process.

SCALE-Sim 3.0.0 needs NumPy below 2, meshcast needs 2; ZigZag brings 400 MB. `meshcast doctor --install NAME` makes the
environment in the user's cache folder, from the exact versions in `NAME.lock`; `MESHCAST_NAME_PYTHON` names another one.
All of them run isolated (`-I`): neither the current folder nor what is set for another Python reaches them.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from meshcast.base import UnsupportedError, cache_folder, environment_python, install_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An outside simulator: the distribution to look for, the lock file that installs it, and what it is for.

    Attributes:
        below: The first Python that its locked versions have no wheels for.
    """

    name: str
    distribution: str
    purpose: str
    below: tuple[int, int]

    @property
    def variable(self) -> str:
        """The environment variable that names its Python."""
        return f"MESHCAST_{self.name.upper()}_PYTHON"

    @property
    def folder(self) -> Path:
        """The folder that `doctor --install` makes the environment in."""
        return cache_folder("environments") / self.name

    @property
    def python(self) -> Path | None:
        """The environment's Python; None where the environment is not installed."""
        given = os.environ.get(self.variable)
        if given:
            return Path(given)
        own = environment_python(self.folder)
        return own if own.exists() else None

    def release(self) -> str | None:
        """The installed release; None where it, or its Python, is missing."""
        return _release(str(self.python), self.distribution) if self.python else None

    def ready(self) -> tuple[Path, str]:
        """The environment's Python and the simulator's release, ready to be called.

        Raises:
            UnsupportedError: It is not installed.
        """
        python, release = self.python, self.release()
        if python is None or release is None:
            where = f"{self.variable}={python}" if os.environ.get(self.variable) else self.name
            raise UnsupportedError(
                f"{self.name} is not installed: {self.purpose} runs it in an environment of its own",
                where=where,
                fix=f"meshcast doctor --install {self.name}, or set {self.variable} to a Python that has it",
            )
        return python, release

    def install(self) -> str:
        """Makes the environment anew; its release.

        Raises:
            UnsupportedError: This Python is too new for it, or the packages cannot be fetched.
        """
        if sys.version_info[:2] >= self.below:
            raise UnsupportedError(
                f"{self.name} has no packages for Python {sys.version_info[0]}.{sys.version_info[1]}",
                where=sys.executable,
                fix=f"make an environment with Python below {self.below[0]}.{self.below[1]} and {self.distribution} in "
                f"it, and set {self.variable} to its python",
            )
        lock = resources.files("meshcast.estimate.outside").joinpath(f"{self.name}.lock")
        with resources.as_file(lock) as path:
            install_environment(self.folder, path, name=self.name)
        _release.cache_clear()
        return self.ready()[1]


@functools.cache
def _release(python: str, distribution: str) -> str | None:
    asked = f"from importlib.metadata import version; print(version({distribution!r}))"
    try:
        done = subprocess.run([python, "-I", "-c", asked], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


SCALESIM = Environment(name="scalesim", distribution="scalesim", purpose="--simulator scalesim", below=(3, 13))
ZIGZAG = Environment(name="zigzag", distribution="zigzag-dse", purpose="--simulator zigzag", below=(3, 13))
ENVIRONMENTS = {environment.name: environment for environment in (SCALESIM, ZIGZAG)}
