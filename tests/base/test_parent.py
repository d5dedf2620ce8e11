"""Processes whose parent is killed outright: they end, whatever they are at, and so do those that they have started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from meshcast.base import child_environment, python_command

BUSY = """
import os, sys, time
from pathlib import Path
from meshcast.base.child import serve
def answer(request, data):
    Path(sys.argv[1]).write_text(str(os.getpid()))
    while True:  # Python at work, not a wait for a pipe
        sum(range(1000))
serve(answer)
"""
PARENT = """
import sys, threading
from meshcast.base.child import Child
child = Child("busy", sys.argv[1])
asked = threading.Thread(target=child.start)  # children are started by threads that end before the process does
asked.start()
asked.join()
child.request({}, b"")
"""

SPACE = """schema = "meshcast.space/1"
model = "gpt3-175b"
on = "dgx-h100"
devices = 1024
set = {batch = 512}
[plan]
"""


def gone(pid: int, within_s: float = 30.0) -> bool:
    """Whether a process ends in time; one that has ended and that nobody has asked after has gone too."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def written(place: Path, within_s: float = 60.0) -> str:
    """What a file has, once it has something."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if place.exists() and (text := place.read_text()):
            return text
        time.sleep(0.05)
    raise AssertionError(f"{place.name} was not written")


def test_a_busy_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    environment = child_environment()
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    noted = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(noted)], env=environment)
    child = int(written(noted))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert gone(child)


def test_what_is_left_of_a_search_ends_with_explore(tmp_path: Path) -> None:
    """Its workers are in the middle of programs that take long."""
    (tmp_path / "space.toml").write_text(SPACE)
    words = ["explore", str(tmp_path / "space.toml"), "--workers", "1", "--out", str(tmp_path / "run")]
    explore = subprocess.Popen(python_command("meshcast", *words), env=child_environment(), stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (workers := below(explore.pid)) and explore.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    assert workers
    explore.send_signal(signal.SIGKILL)
    explore.wait()
    assert [each for each in workers if not gone(each)] == []


def below(pid: int) -> list[int]:
    """Processes that one has started, and those that these have."""
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] if _runs(pid) else []
    for thread in Path(f"/proc/{pid}/task").glob("*/children") if _runs(pid) else ():
        found += [int(each) for each in thread.read_text().split() if int(each) not in found]
    return found + [other for each in found for other in below(each)]


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_search_of_the_page_ends_with_the_server_and_keeps_what_it_has(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    words = ["serve", "--port", "0", "--workers", "1", "--runs", str(tmp_path)]
    server = subprocess.Popen(
        python_command("meshcast", *words), env=child_environment(), stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    found = re.search(r"http://localhost:\d+/", server.stderr.readline())
    assert found
    asked = {"model": "gpt3-175b", "on": ["dgx-h100"], "devices": [1024], "settings": {"batch": "512"}}
    request = urllib.request.Request(
        f"{found[0]}api/searches", json.dumps(asked).encode(), {"content-type": "application/json"}
    )
    name = json.load(urllib.request.urlopen(request, timeout=120))["name"]
    written(tmp_path / name / "environment.json")
    until = time.monotonic() + 60
    while len(started := below(server.pid)) < 3 and time.monotonic() < until:
        time.sleep(0.1)  # the search has written where it runs before it starts anything
    assert len(started) >= 3  # a worker of the page, the search, and a worker of that
    server.send_signal(signal.SIGKILL)
    server.wait()
    server.stderr.close()
    assert [each for each in started if not gone(each)] == []
    assert (tmp_path / name / "environment.json").exists()
