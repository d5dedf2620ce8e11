"""The profiles that come with the project: each has the program that was profiled, not one that has changed since."""

from __future__ import annotations

import gzip
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

PROFILES = Path(__file__).parents[3] / "data" / "measured" / "h200-profiles"
ENTRIES: dict[str, dict[str, Any]] = tomllib.loads((PROFILES / "profiles.toml").read_text())
OF_HLO = {"i32": "s32", "i64": "s64", "ui32": "u32", "ui8": "u8", "i1": "pred"}


def text(name: str) -> str:
    return gzip.decompress((PROFILES / name).read_bytes()).decode()


def compiled_arguments(name: str) -> list[str]:
    found = re.search(r"entry_computation_layout=\{\((.*?)\)->", text(name))
    assert found is not None
    return re.findall(r"\w+\[[\d,]*\]", re.sub(r"/\*.*?\*/", "", found[1]))


def captured_arguments(name: str) -> list[str]:
    found = re.search(r"func\.func public @main\((.*?)\) -> ", text(name), re.DOTALL)
    assert found is not None
    parts = [shape.split("x") for shape in re.findall(r"%arg\d+: tensor<([^>]*)>", found[1])]
    return [f"{OF_HLO.get(dtype, dtype)}[{','.join(sizes)}]" for *sizes, dtype in parts]


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if {"target", "compiled"} <= entry.keys()])
def test_the_captured_program_has_the_arguments_of_the_compiled_one(name: str) -> None:
    entry = ENTRIES[name]
    assert captured_arguments(entry["target"]) == compiled_arguments(entry["compiled"])


def test_every_file_is_named_and_there() -> None:
    named = {"README.md", "profiles.toml"}
    for entry in ENTRIES.values():
        named |= {entry[key] for key in ("target", "compiled") if key in entry} | {*entry["traces"]}
        # Programs with CUDA graphs were compiled anew, and launches of Nsight's have their summary.
        named |= {trace.replace(".xplane.pb", ".hlo") for trace in entry["traces"] if "-graphs" in trace}
        named |= {trace.replace("-nsys.", "-nsys-sum.") for trace in entry["traces"] if "-nsys." in trace}
    assert {path.name for path in PROFILES.iterdir()} == named
