"""An option that has only so many values is refused elsewhere before anything is worked out, whatever the job is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshcast.base import UsageError
from meshcast.jobs.resolve import resolve_job
from meshcast.options import Options
from meshcast.options.options import option_places

FIXTURES = Path(__file__).parents[1] / "fixtures"
CHOSEN = [name for name, place in option_places().items() if place.field.declaration.one_of is not None]
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "program": (str(FIXTURES / "tanh.mlir"), {}),
    "model": ("mlp-tiny", {}),
    "pipeline": ("gpt2-tiny", {"plan": "pp=2", "settings": {"batch": "8"}}),
    "serving": ("gpt2-tiny", {"settings": {"mode": "serve"}}),
}


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_value_that_there_is_not_makes_no_job(name: str, kind: str) -> None:
    target, options = JOBS[kind]
    with pytest.raises(UsageError, match="'zzz'") as caught:
        resolve_job(target, Options(on="dgx-h100", **options).having(**{name: "zzz"}))
    assert caught.value.where == option_places()[name].field.declaration.where
