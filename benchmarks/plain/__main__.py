"""Writes steps of models as people write them by hand in plain JAX: `python -m benchmarks.plain -o FOLDER [NAME...]`.

Few layers at realistic sizes, so that a compiler takes seconds for each; styles differ on purpose (norms, positions, masks,
caches, losses, optimizers). They were never measured: they are for holding modelled kernels against the compiler's. Half of them,
by the hash of their names, lie in `apart`.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import jax

from benchmarks.plain.catalogue import PROGRAMS, apart

MODULES = ("language", "decoding", "images", "sequences", "others", "generators")


def main() -> None:
    """Writes what is named, or all."""
    for name in MODULES:
        importlib.import_module(f"benchmarks.plain.{name}")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("names", nargs="*", help="of `PROGRAMS`; all without any")
    asked = parser.parse_args()
    for name in asked.names or PROGRAMS:
        call, arguments, donated = PROGRAMS[name]()
        lowered = (
            jax.jit(call, donate_argnums=donated, keep_unused=True)
            .trace(*arguments)
            .lower(lowering_platforms=("cuda",))
        )
        folder = asked.output / ("apart" if apart(name) else "open")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.mlir").write_text(lowered.as_text(), encoding="utf-8")
        print(f"{folder.name:6} {name}", flush=True)


if __name__ == "__main__":
    main()
