"""ASTRA-sim's programs: their names, where they are, and how to get them."""

from __future__ import annotations

import shutil
from pathlib import Path

ASTRA_SIM_PURPOSE = "collectives by ASTRA-sim itself (--network astra-sim, validate astra --by astra-sim)"
# By the analytical backend that each is.
ASTRA_SIM_PROGRAMS = {
    "Unaware": "AstraSim_Analytical_Congestion_Unaware",
    "Aware": "AstraSim_Analytical_Congestion_Aware",
}
HOW_TO_GET_ASTRA_SIM = (
    "build github.com/astra-sim/astra-sim (build/astra_analytical/build.sh; it needs cmake, a C++17 compiler and protobuf) "
    "and put build/astra_analytical/build/bin on the PATH"
)


def program_path(backend: str) -> Path | None:
    """A backend's program on the PATH."""
    found = shutil.which(ASTRA_SIM_PROGRAMS[backend])
    return Path(found) if found else None
