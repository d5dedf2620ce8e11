"""Where XLA's CUDA compiler lies, and how it comes there.

Two packages of the index, and nothing that they depend on: XLA's CUDA plugin, and nvcc for libdevice and ptxas. The plugin need
not be of jaxlib's own release: it is handed StableHLO, which every later one reads, and answers in HLO's protocol buffer. It has
the release that the H200 was measured with, so that its kernels are those that were timed, or jaxlib's own where that is newer.
Neither a driver, nor a CUDA runtime, nor a GPU is needed. Both go into a folder of the user's cache that no Python imports
from: beside JAX, the plugin would be found by JAX itself, which then looks for a driver whenever it runs anything. They are found
among this Python's packages too, where the extra `gpu-compiler` has put them.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from meshcast.base import UnsupportedError, cache_folder, install_into

GPU_COMPILER = "gpu-compiler"  # of the extra too
VARIABLE = "MESHCAST_GPU_COMPILER"
ABSENT = "none"  # the variable's word for no compiler at all, whatever is installed
HOW_TO_INSTALL_GPU_COMPILER = f"meshcast doctor --install {GPU_COMPILER}"
MEASURED = "0.11.2"  # the release whose kernels were timed (data/measured)
UNTRIED = "0.13"  # the first release that nobody has tried, as of jaxlib itself (pyproject.toml)
PLUGIN, TOOLKIT = "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12>=12.6"
# Distributions with the folder of theirs that matters, the first found is taken. A toolkit may also be the system's own.
_PLUGINS = {"jax-cuda13-pjrt": "jax_plugins/xla_cuda13", PLUGIN: "jax_plugins/xla_cuda12"}
_LIBRARY = "xla_cuda_plugin.so"
_TOOLKITS = ("nvidia/cuda_nvcc", "nvidia/cu13")
_USUAL_TOOLKIT = "/usr/local/cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A compiler that was found.

    Attributes:
        release: Its distribution and version, in words.
        library: The plugin.
        toolkit: The folder with libdevice and ptxas.
    """

    release: str
    library: Path
    toolkit: Path


def wanted_release() -> str:
    """The plugin's release that is installed: the measured one, or jaxlib's own where that is newer."""
    return max(MEASURED, _jaxlib_version(), key=_release)


def own_folder() -> Path:
    """Where `install_gpu_compiler` puts the compiler; one a release of it."""
    return cache_folder("environments") / f"{GPU_COMPILER}-{wanted_release()}"


def found_gpu_compiler() -> Installation | str:
    """The compiler that this jaxlib can load; else, in words, why there is none."""
    jaxlib = _jaxlib_version()
    others: list[str] = []
    for folder in _places():
        for name, inside in _PLUGINS.items():
            library = folder / inside / _LIBRARY
            # Most places have none: a look for the file is quicker than one through all distributions.
            version = _version(name, folder) if library.is_file() else None
            if version is None:
                continue
            if _release(jaxlib)[:3] <= _release(version) < _release(UNTRIED):
                return Installation(release=f"{name} {version}", library=library, toolkit=_toolkit())
            others.append(f"{name} {version} does not go with jaxlib {jaxlib}")
    return others[0] if others else "XLA's CUDA compiler is not installed"


def install_gpu_compiler() -> str:
    """Fetches the compiler, 210 MB; its release.

    Raises:
        UnsupportedError: There is none for this platform or release, or it cannot be fetched.
    """
    if not sys.platform.startswith("linux"):
        raise UnsupportedError(
            f"XLA's CUDA compiler has packages for Linux alone, not for {sys.platform}",
            where=GPU_COMPILER,
            fix="compile on a Linux machine, or use the modelled lowering",
        )
    folder = own_folder()
    install_into(folder, [f"{PLUGIN}=={wanted_release()}", TOOLKIT], name=GPU_COMPILER)
    found = found_gpu_compiler()
    if isinstance(found, str):
        raise UnsupportedError(
            f"{GPU_COMPILER} was installed and is not found: {found}", where=str(folder), fix=f"unset {VARIABLE}"
        )
    return found.release


def _places() -> list[Path]:
    """Folders that packages lie in, the first looked through first."""
    given = os.environ.get(VARIABLE)
    if given:
        return [] if given == ABSENT else [Path(given)]
    return [own_folder(), *(Path(entry) for entry in sys.path if entry)]


def _release(version: str) -> tuple[int, ...]:
    """A version's numbers, in order; what follows them (a candidate, a build) does not count."""
    return tuple(int(number) for number in re.findall(r"\d+", version.split("+")[0].split("rc")[0].split(".dev")[0]))


@functools.cache
def _jaxlib_version() -> str:
    """Of the jaxlib that this process runs with; asked for by every prediction, and a millisecond to look up."""
    return metadata.version("jaxlib")


def _version(distribution: str, folder: Path) -> str | None:
    return next((found.version for found in metadata.distributions(name=distribution, path=[str(folder)])), None)


def _toolkit() -> Path:
    folders = (folder / inside for folder in _places() for inside in _TOOLKITS)
    return next((folder for folder in folders if folder.is_dir()), Path(_USUAL_TOOLKIT))
