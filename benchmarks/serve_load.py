"""The page under load on loopback: visitors that ask the same few things at once, then each something else, and damaged programs.

    python benchmarks/serve_load.py [--seconds 60] [--visitors 20] [--mutations 500] [--different 60]

Each visitor opens the page and then asks for one of a few predictions again and again, as a page does whose user goes to and
fro. Printed: requests, errors, the median and the slowest of answers that were kept, and the server's memory before and
after. Then all of them ask for so many seconds what nobody has asked before (models in other sizes under other plans, with
all of their sections), and the memory of the server and of all that it has started is told over the number of programs that
they have seen. Last, so many damaged copies of a module are handed in and, where one can still be read, predicted: no answer
may be a 500, and the server must be there at the end. The exit code is 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
MODELS = ("llama3-tiny", "llama3-8b", "gpt2-tiny", "mixtral-tiny")
PLANS = ("fsdp=4", "fsdp=2,tp=2", "dp=2,tp=2", "dp=4")


def asked(address: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of one request."""
    request = urllib.request.Request(address + path, data=body, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=180) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def answered(address: str, path: str, body: bytes) -> tuple[int, bytes]:
    """The answer, however long it takes."""
    status, found = asked(address, path, body)
    while status == 202:
        status, found = asked(address, f"api/jobs/{json.loads(found)['job']}?wait=20")
    return status, found


def configuration(plan: str) -> bytes:
    """A question that a visitor asks."""
    return json.dumps({"model": "llama3-tiny", "on": "dgx-h100", "plan": plan, "settings": {"batch": "8"}}).encode()


def visitors(address: str, count: int, seconds: float) -> tuple[list[float], collections.Counter[int]]:
    """Seconds of every kept answer, and how many answers had which status."""
    times: list[float] = []
    seen: collections.Counter[int] = collections.Counter()
    until = time.monotonic() + seconds

    def visit(number: int) -> None:
        for path in ("", "main.js", "style.css", "api/catalogue"):
            seen[asked(address, path)[0]] += 1
        turn = number
        while time.monotonic() < until:
            turn += 1
            started = time.perf_counter()
            status, _ = answered(address, "api/predict", configuration(PLANS[turn % len(PLANS)]))
            times.append(time.perf_counter() - started)
            seen[status] += 1
            time.sleep(0.05)

    _all_at_once(visit, count)
    return times, seen


def unasked(number: int) -> bytes:
    """A question that nobody has asked before: another length, another batch, another plan, another model."""
    model = MODELS[number % len(MODELS)]
    sizes = {"batch": str(8 * (1 + number % 7)), "seq": str(128 * (1 + number // len(MODELS)))}
    return json.dumps(
        {"model": model, "on": "dgx-h100", "plan": PLANS[number % len(PLANS)], "settings": sizes}
    ).encode()


def strangers(server: int, address: str, count: int, seconds: float) -> dict[str, Any]:
    """What becomes of memory while every question is a new one."""
    seen: collections.Counter[int] = collections.Counter()
    memory: list[tuple[int, float]] = []  # programs so far, megabytes of all processes
    numbers = itertools.count()
    until = time.monotonic() + seconds

    def visit(_: int) -> None:
        while time.monotonic() < until:
            number = next(numbers)
            for path in ("api/sections?part=summary", "api/sections?part=details"):
                seen[answered(address, path, unasked(number))[0]] += 1

    watched = threading.Event()

    def watch() -> None:
        while True:  # once at least, however few seconds are asked for
            memory.append((seen.total() // 2, sum(map(resident, family(server))) / 1e6))
            if watched.wait(0.5):
                return

    watching = threading.Thread(target=watch)
    watching.start()
    _all_at_once(visit, count)
    watched.set()
    watching.join()
    step = max(1, len(memory) // 12)
    return {
        "programs": seen.total() // 2,
        "statuses": dict(seen),
        "all_processes_mb_most": round(max(each for _, each in memory)),
        "all_processes_mb_over_programs": {str(done): round(each) for done, each in memory[::step]},
    }


def family(pid: int) -> list[int]:
    """A process and all that it has started, and they."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [each for child in task.read_text().split() for each in family(int(child))]
    return found


def _all_at_once(visit: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=visit, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def damaged(address: str, count: int) -> collections.Counter[int]:
    """Statuses of damaged modules."""
    from tests.serve.mutations import mutations

    data = (ROOT / "tests" / "fixtures" / "sharded.mlir").read_bytes()
    seen: collections.Counter[int] = collections.Counter()
    for each in mutations(data, count, seed=1):
        status, found = answered(address, "api/programs?name=damaged.mlir", each)
        if status == 200:
            question = {"program": json.loads(found)["program"], "on": "h200"}
            status, found = answered(address, "api/predict", json.dumps(question).encode())
        seen[status] += 1
    return seen


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    with contextlib.suppress(OSError):  # it has ended
        found = re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has had: what a busy machine does not change."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Runs both, and says what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--mutations", type=int, default=500)
    parser.add_argument(
        "--different", type=float, default=60.0, help="seconds of questions that nobody has asked before"
    )
    given = parser.parse_args()
    command = [sys.executable, "-m", "meshcast", "serve", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    address = re.search(r"http://\S+/", server.stderr.readline())
    assert address is not None
    threading.Thread(target=server.stderr.read, daemon=True).start()
    result: dict[str, Any] = {}
    try:
        for plan in PLANS:  # so that every answer below is one that is kept
            assert answered(address[0], "api/predict", configuration(plan))[0] == 200
        before, spent = resident(server.pid), cpu_s(server.pid)
        times, seen = visitors(address[0], given.visitors, given.seconds)
        result["visitors"] = {
            "requests": seen.total(),
            "statuses": dict(seen),
            "median_ms": round(1e3 * statistics.median(times), 2),
            "p99_ms": round(1e3 * statistics.quantiles(times, n=100)[98], 2),
            "server_cpu_ms_a_request": round(1e3 * (cpu_s(server.pid) - spent) / seen.total(), 2),
            "server_mb_before": round(before / 1e6),
            "server_mb_after": round(resident(server.pid) / 1e6),
        }
        others = strangers(server.pid, address[0], given.visitors, given.different)
        result["different"] = others
        kinds = damaged(address[0], given.mutations)
        result["damaged"] = dict(kinds)
        result["server_mb_at_end"] = round(resident(server.pid) / 1e6)
        alive = asked(address[0], "api/runs")[0] == 200
    finally:
        server.terminate()
        server.wait()
    print(json.dumps(result, indent=1))
    return (
        0 if alive and set(seen) == {200} and set(others["statuses"]) <= {200, 422} and set(kinds) <= {200, 422} else 1
    )


if __name__ == "__main__":
    sys.exit(main())
