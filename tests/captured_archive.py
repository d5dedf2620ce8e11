"""Captured programs that come with the sources, so that the tests of a fresh clone need not capture a thousand models first.

    make captured-programs

packs what the last run of the tests has left on disk (`tests/captured_programs.py`). The archive begins with the digest of what
its programs were made of: where the sources say anything else, or another JAX is installed, none of it is read and every program
is captured as if there were none. `tests/test_captured_programs.py` captures some anew and compares.
"""

from __future__ import annotations

import hashlib
import lzma
import pickle
import sys
from pathlib import Path

from tests.captured_programs import made_of

ARCHIVE = Path(__file__).parent / "data" / "captured-programs.xz"
# The window spans several hundred programs, which are alike: the archive is two thirds of what the usual 8 MiB make.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 26}]


def digest_of(archive: Path) -> str:
    """What the programs of an archive were made of, empty where there is no archive."""
    try:
        with archive.open("rb") as file:
            return file.readline(80).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def packed(archive: Path) -> dict[str, bytes]:
    """All files of an archive by name."""
    return pickle.loads(lzma.decompress(archive.read_bytes().split(b"\n", 1)[1]))


def pack(folder: Path, archive: Path) -> int:
    """Writes all programs of a folder, which is named after its digest, into an archive, and returns how many."""
    # Programs of one size are mostly those of one model: next to each other they are packed best.
    programs = sorted(
        (path for path in folder.iterdir() if not path.suffix), key=lambda path: (path.stat().st_size, path.name)
    )
    kept = {path.name: path.read_bytes() for path in programs}
    packed = lzma.compress(pickle.dumps(kept), filters=FILTERS)
    archive.write_bytes(folder.name.encode() + b"\n" + packed)
    return len(kept)


def unpack(archive: Path, folder: Path) -> int:
    """Adds an archive's programs to a folder, if they were made of what the folder is named after; returns how many were new."""
    if digest_of(archive) != folder.name:
        return 0
    done = folder / f"{hashlib.sha256(archive.read_bytes()).hexdigest()}.unpacked"
    if done.exists():
        return 0
    missing = {name: program for name, program in packed(archive).items() if not (folder / name).exists()}
    for name, program in missing.items():
        draft = folder / f"{name}.draft"
        draft.write_bytes(program)
        draft.replace(folder / name)
    done.touch()
    return len(missing)


def main() -> None:
    """Packs the folder of these sources in pytest's cache."""
    folder = Path(".pytest_cache/d/captured") / made_of()
    if not folder.is_dir():
        sys.exit(f"{folder} is not there: run the tests of these sources first (make test)")
    print(f"{ARCHIVE}: {pack(folder, ARCHIVE)} programs, {ARCHIVE.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
