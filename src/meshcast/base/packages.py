"""Packages of others in folders of their own: fetched by pip, whole or not at all, beside what this Python has."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from meshcast.base.errors import UnsupportedError

_PIP = ("-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
# As they come: no package is built here, and modules are compiled when they are first imported.
_WHEELS = ("--only-binary", ":all:", "--no-compile")


def install_into(folder: Path, requirements: Sequence[str], *, name: str) -> None:
    """Fetches wheels into a folder, made anew, without what they depend on. An interrupted one leaves nothing behind.

    Args:
        folder: Where they go, as `pip install --target` lays them out.
        requirements: What pip is asked for.
        name: What is installed, for messages.

    Raises:
        UnsupportedError: pip or the packages cannot be had.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as made:
        fetched = Path(made) / "packages"
        run_python(
            [*_PIP, *_WHEELS, "--target", str(fetched), *requirements], _with_pip(Path(made)), name=name, folder=folder
        )
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)


def install_environment(folder: Path, requirements_file: Path, *, name: str) -> None:
    """Makes a Python environment anew from a file of exact versions.

    Raises:
        UnsupportedError: The packages cannot be had.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        run_python(["-I", "-m", "venv", str(folder)], Path(sys.executable), name=name, folder=folder)
        run_python([*_PIP, "-r", str(requirements_file)], environment_python(folder), name=name, folder=folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def environment_python(folder: Path) -> Path:
    """The Python of an environment."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def run_python(arguments: Sequence[str], python: Path, *, name: str, folder: Path) -> None:
    """Runs a Python to install something; its last line is the error's where it fails.

    Raises:
        UnsupportedError: It failed.
    """
    done = subprocess.run([str(python), *arguments], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise UnsupportedError(
            f"{name} cannot be installed: {lines[-1]}",
            where=str(folder),
            fix="check the connection to the package index",
        )


def _with_pip(folder: Path) -> Path:
    """A Python that has pip: this one, or one of an environment made for it (other tools make environments without)."""
    if importlib.util.find_spec("pip") is not None:
        return Path(sys.executable)
    made = folder / "pip"
    run_python(["-I", "-m", "venv", str(made)], Path(sys.executable), name="pip", folder=made)
    return environment_python(made)
