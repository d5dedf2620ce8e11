"""A space searched into its run folder: points as they are finished, then the summary, the table and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshcast.base import MeshcastError, write_whole
from meshcast.explore.asking import explore
from meshcast.explore.exploration import Exploration
from meshcast.explore.plot import exploration_svg
from meshcast.explore.space_file import SpaceFile
from meshcast.explore.store import RunStore

PLOT = "plot.svg"


def explore_into(
    folder: Path | None, read: SpaceFile, *, title: str, resume: bool = False, command: Sequence[str] = (), **asked: Any
) -> tuple[Exploration, list[str]]:
    """What a search of a space has found, and the files that it has left in its folder.

    Args:
        folder: The run folder; None keeps nothing.
        read: The space.
        title: Of the picture.
        resume: Whether points of an earlier run in the folder are taken.
        command: The command line, for the folder.
        **asked: As `explore` takes it, in place of what the space wants.

    Raises:
        MeshcastError: The space or the folder cannot be used.
    """
    new = folder is not None and not folder.exists()
    store = (
        RunStore.opened(folder, read.space, read.text, resume=resume, command=command) if folder is not None else None
    )
    try:
        found = explore(read.space, then=read.then, store=store, **{**read.asked, **asked})
    except MeshcastError:
        if store is not None and new:
            store.discard()
        raise
    written: list[str] = []
    if store is not None and folder is not None:
        written = store.finish(found.to_json(), found.row_of)
        if found.best:
            write_whole(folder / PLOT, exploration_svg(found, title=title).encode())
            written.append(PLOT)
    return found, written
