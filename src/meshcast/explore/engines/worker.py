"""A worker of `engines.processes`: works from the standard input, answers on the standard output, until its parent has gone."""

from __future__ import annotations

import json
from typing import Any

from meshcast.base import serve
from meshcast.explore.work import SearchWork, answer_json, done


def answer(_: dict[str, Any], data: bytes) -> bytes:
    """The answer to one work."""
    return json.dumps(answer_json(done(SearchWork.from_json(json.loads(data))))).encode()


if __name__ == "__main__":
    serve(answer)
