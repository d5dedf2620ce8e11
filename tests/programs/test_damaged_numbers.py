"""Numbers of damaged programs that point nowhere or are none: typed errors, or no estimate; found by fuzzing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from meshcast.base.errors import InputError
from meshcast.programs.exported import _symbols
from meshcast.workload.launches import _cycles


def test_an_export_that_keeps_an_argument_it_does_not_have() -> None:
    exported = SimpleNamespace(module_kept_var_idx=(32,), in_avals=(SimpleNamespace(shape=(4,)),))
    with pytest.raises(InputError, match="keeps argument 32 of 1"):
        _symbols(exported, where="damaged.bin")


@pytest.mark.parametrize(
    ("said", "cycles"), [("estimated_scoped_vmem_bytes", None), ("-3", None), (None, None), ("1200", 1200.0), (7, 7.0)]
)
def test_an_estimate_that_is_no_number_is_none(said: object, cycles: float | None) -> None:
    assert _cycles({"window_config": {"estimated_cycles": said}}) == cycles
