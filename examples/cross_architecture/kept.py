"""What compilers made of the example's programs, shipped in `compiled/`: put where their adapters look for it."""

from __future__ import annotations

from pathlib import Path

from meshcast.base import keep
from meshcast.lower.compiled.compilation_cache import path_of

COMPILE_LIMIT_S = 1800.0  # ResNet-50's step takes XLA's GPU compiler a minute and a half on an idle core
COMPILED = Path(__file__).resolve().parent / "compiled"


def keep_compiled() -> None:
    """Puts what libtpu made of the steps where its adapter looks: by the hash of program, target, versions and flags.

    Minutes to an hour of a compiler each. Another release of libtpu or jaxlib finds nothing under its own hash, and compiles.
    """
    for path in sorted(COMPILED.glob("*.json.gz")):
        kept = path_of("xla-tpu", path.name.split(".")[2])
        if not kept.exists():
            keep(kept, path.read_bytes())
