"""The address of a Ray cluster: one of this machine's own where none is said; where nobody answers it is told at once."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from meshcast.base import UsageError
from meshcast.explore.engines import engine_named, on_ray
from meshcast.explore.engines.ray_address import cluster_address


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a stand-in for Ray was started with; it has no clusters but what it is told of."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    calls: list[dict[str, Any]] = []

    class Stand:
        is_initialized = staticmethod(lambda: False)
        init = staticmethod(lambda **given: calls.append(given))
        cluster_resources = staticmethod(lambda: {"CPU": 2.0})
        remote = staticmethod(lambda **_: lambda made: made)
        shutdown = staticmethod(lambda: None)

    monkeypatch.setattr(on_ray, "_ray", Stand)
    return calls


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _closed() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _stand_in_services(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    services = ModuleType("ray._private.services")

    def found(_asked: str, _folder: None) -> str:
        if address is None:
            raise ConnectionError
        return address

    services.get_ray_address_from_environment = found  # type: ignore[attr-defined]
    for name in ("ray", "ray._private"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "ray._private.services", services)


def test_without_an_address_a_cluster_is_started(asked: list[dict[str, Any]]) -> None:
    engine_named("ray", workers=1).close()
    # None would join whatever some earlier program has left the name of.
    assert [each["address"] for each in asked] == ["local"]


def test_what_answers_is_joined(asked: list[dict[str, Any]], listening: int) -> None:
    for address in (f"127.0.0.1:{listening}", f"ray://127.0.0.1:{listening}"):
        engine_named("ray", workers=1, address=address).close()
    assert [each["address"] for each in asked] == [f"127.0.0.1:{listening}", f"ray://127.0.0.1:{listening}"]


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_where_nobody_answers_ray_is_not_asked(asked: list[dict[str, Any]], scheme: str) -> None:
    with pytest.raises(UsageError, match="answers: Connection refused") as told:
        engine_named("ray", workers=1, address=f"{scheme}127.0.0.1:{_closed()}")
    assert told.value.exit_code == 2
    assert "ray start --head" in (told.value.fix or "")
    assert not asked


@pytest.mark.parametrize("address", ["127.0.0.1", "host:many", "http://127.0.0.1:8265", ":6379"])
def test_what_is_no_address_is_told(asked: list[dict[str, Any]], address: str) -> None:
    with pytest.raises(UsageError, match="no address of a Ray cluster"):
        engine_named("ray", workers=1, address=address)
    assert not asked


def test_auto_is_what_runs_on_this_machine(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, listening: int
) -> None:
    _stand_in_services(monkeypatch, f"127.0.0.1:{listening}")
    engine_named("ray", workers=1, address="auto").close()
    assert [each["address"] for each in asked] == [
        "auto"
    ]  # tried first; Ray has the cluster's token of that name alone
    _stand_in_services(monkeypatch, None)
    with pytest.raises(UsageError, match="no Ray cluster runs on this machine"):
        engine_named("ray", address="auto")
    dead = f"127.0.0.1:{_closed()}"
    _stand_in_services(monkeypatch, dead)
    with pytest.raises(UsageError, match=f"{dead}, which auto stands for, answers"):
        engine_named("ray", address="auto")


def test_the_environment_names_a_cluster(monkeypatch: pytest.MonkeyPatch, listening: int) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{listening}")
    assert cluster_address(None) == cluster_address("auto") == f"127.0.0.1:{listening}"
    assert cluster_address("local") == "local"
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(UsageError, match="no address of a Ray cluster") as told:
        cluster_address(None)
    assert told.value.where == "RAY_ADDRESS"


@pytest.mark.parametrize("engine", ["processes", "in-process"])
def test_an_address_is_of_ray_alone(engine: str) -> None:
    with pytest.raises(UsageError, match="joins no cluster at auto") as told:
        engine_named(engine, address="auto")
    assert told.value.where == "--address"


def test_why_a_cluster_does_not_take_us_is_told(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, listening: int
) -> None:
    def refused(**_: object) -> None:
        cause = RuntimeError("Failed to connect. Last error: Traceback:\n  File x\nAuthError: a token is missing\n")
        raise ConnectionError("Failed to connect to Ray cluster") from cause

    monkeypatch.setattr(type(on_ray._ray()), "init", staticmethod(refused))
    with pytest.raises(UsageError, match="AuthError: a token is missing"):
        engine_named("ray", address=f"127.0.0.1:{listening}")
