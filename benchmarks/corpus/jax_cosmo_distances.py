"""jax-cosmo: distances in many universes at once."""

from __future__ import annotations

from typing import Any

import jax
import jax_cosmo

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

COSMO = Catalogue("jax-cosmo", "example", "science")
CATALOGUES = [COSMO]


@COSMO.program("jax_cosmo_distances", "infer")
def _() -> Call:
    def distances(matter: Any, scales: Any) -> Any:
        def one(omega: Any) -> Any:
            sky = jax_cosmo.Planck15(Omega_c=omega)
            return jax_cosmo.background.radial_comoving_distance(sky, scales)

        return jax.vmap(one)(matter)

    return distances, (spec(256), spec(512))
