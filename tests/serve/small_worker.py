"""A worker for tests of the server's limits: what it does with a question is said by the name of a model or of a program."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from meshcast.serve.worker import PageWorker, work


class SmallWorker(PageWorker):
    """Sleeps, dies, eats memory or says much, as it is told; otherwise it says who it is and how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self._asked_so_far = 0
        self._kept = b""

    def _answers(self) -> dict[str, Callable[[Mapping[str, Any], bytes], tuple[str, bytes]]]:
        return {
            "choices": lambda question, data: self._does(question["asked"]["model"], question["asked"]["on"]),
            "program": lambda question, data: self._does(question["name"]),
        }

    def _does(self, name: str, on: str = "") -> tuple[str, bytes]:
        self._asked_so_far += 1
        match name.split("-")[0]:
            case "sleeps":
                time.sleep(30)
            case "naps":
                time.sleep(0.2)
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "eats":
                bytearray(2**40)
            case "keeps":
                self._kept = b"x" * 2**28
        said = "x" * int(name.split("-")[1]) if name.startswith("says-") else ""
        told = {
            "process": os.getpid(),
            "asked": self._asked_so_far,
            "said": said,
            "name": name,
            "on": on,
            "mode": "train",
        }
        return "application/json", json.dumps(told).encode()


if __name__ == "__main__":
    work(SmallWorker, memory_bytes=int(sys.argv[1]), folder=sys.argv[2])
