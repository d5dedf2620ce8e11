"""One search of the page, in a process of its own: it says how far it is in a file, ends on SIGINT or when the server has gone,
and keeps what it has found.

python -m meshcast.serve.search_process SPACE.toml FOLDER PROGRESS WORKERS
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

from meshcast.base import READER_BYTES, MeshcastError, Said, end_with_parent, listen, listening, write_whole

STOPPED = 130  # as shells report a program that Ctrl-C ended


def _again(folder: Path) -> tuple[str, ...]:
    """The command that does the same: the folder keeps what was searched over."""
    return "meshcast", "explore", str(folder / "space.toml")


def search(space: Path, folder: Path, progress: Path, workers: int) -> int:
    """Runs the search; the exit code. An error is one object on the standard output."""
    from meshcast.explore import explore_into, read_space

    def note(said: Said) -> None:
        write_whole(progress, json.dumps({"said": said, "share": said.share}))

    try:
        with listening(note):
            found, _ = explore_into(
                folder, read_space(space), title=folder.name, command=_again(folder), workers=workers
            )
    except MeshcastError as error:
        print(json.dumps(error.to_json()))
        return error.exit_code
    except KeyboardInterrupt:  # before there was anything to keep
        return STOPPED
    return STOPPED if found.interrupted else 0


if __name__ == "__main__":
    listen()
    end_with_parent(told=signal.SIGTERM)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    resource.setrlimit(resource.RLIMIT_AS, (READER_BYTES, READER_BYTES))
    space, folder, progress, workers = sys.argv[1:]
    sys.exit(search(Path(space), Path(folder), Path(progress), int(workers)))
