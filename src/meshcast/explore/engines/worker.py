"""A worker of `engines.processes`: works from the standard input, answers on the standard output, until its parent has gone."""

from __future__ import annotations

from typing import Any

from meshcast.base import serve
from meshcast.explore.work import Worker


def answering(worker: Worker) -> Any:
    """What `serve` calls for each work."""

    def answer(_: dict[str, Any], data: bytes) -> bytes:
        return worker.answer(data.decode()).encode()

    return answer


if __name__ == "__main__":
    serve(answering(Worker()))
