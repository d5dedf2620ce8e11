"""A CPU's rates measured on arrays of a few thousand elements: what is tested is what becomes of them, not how true they are."""

from __future__ import annotations

import pytest

from meshcast.evidence.calibrate import backend, device_file


def measure_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the products, lines and chains small that a CPU's rates are found with."""
    monkeypatch.setitem(backend._PRODUCT, "cpu", (256, "float32"))
    monkeypatch.setitem(backend.STREAMED, "cpu", 2**20)
    monkeypatch.setitem(device_file._SIDE, "cpu", 128)
    monkeypatch.setattr(device_file, "_CHAINED", 2**14)
