"""Targets in the user's own Python: none sees another's modules, and ours come out unharmed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from meshcast import predict
from meshcast.base.errors import InputError
from meshcast.programs import load

STEP = """
from __future__ import annotations
import dataclasses
import jax, jax.numpy as jnp
from common import SIZE
{imports}

@dataclasses.dataclass(kw_only=True)
class Settings:
    size: int = SIZE

def build():
    def fn(x):
        import late  # imported while it is traced
        return x @ x * late.SCALE
    return fn, (jax.ShapeDtypeStruct((Settings().size,) * 2, jnp.float32),)
"""


def _folder(root: Path, name: str, size: int, *, file: str = "step.py", imports: str = "") -> str:
    folder = root / name
    folder.mkdir()
    (folder / "common.py").write_text(f"SIZE = {size}\n")
    (folder / "late.py").write_text(f"SCALE = {size}\n")
    (folder / file).write_text(STEP.format(imports=imports))
    return f"{folder / file}:build"


def test_targets_do_not_see_each_others_modules(tmp_path: Path) -> None:
    first, second = _folder(tmp_path, "ua", 128), _folder(tmp_path, "ub", 256)
    path, modules = list(sys.path), set(sys.modules)
    assert [predict(target).flops // 2 for target in (first, second, first)] == [
        pytest.approx(size**3, rel=0.05) for size in (128, 256, 128)
    ]
    assert sys.path == path
    left = set(sys.modules) - modules
    assert not {name for name in left if name.split("_")[0] in ("common", "late", "step")}


def test_a_folder_that_the_target_adds_is_forgotten_too(tmp_path: Path) -> None:
    targets = []
    for name, size in (("ua", 64), ("ub", 32)):
        extra = tmp_path / f"{name}_extra"
        extra.mkdir()
        (extra / "common.py").write_text(f"SIZE = {size}\n")
        target = _folder(tmp_path, name, 8)
        (tmp_path / name / "common.py").unlink()
        step = tmp_path / name / "step.py"
        added = step.read_text().replace("from common", f"import sys\nsys.path.insert(0, {str(extra)!r})\nfrom common")
        step.write_text(added)
        targets.append(target)
    for target, size in zip(targets, (64, 32), strict=True):
        assert f"tensor<{size}x{size}xf32>" in load(target).text


def test_a_file_may_have_the_name_of_an_installed_module(tmp_path: Path) -> None:
    import json

    target = _folder(tmp_path, "ua", 16, file="json.py")
    assert "tensor<16x16xf32>" in load(target).text
    assert sys.modules["json"] is json


def test_a_neighbour_may_import_the_target_by_its_name(tmp_path: Path) -> None:
    target = _folder(tmp_path, "ua", 16, imports="LIMIT = 3\nimport helper\nassert helper.LIMIT == 3")
    (tmp_path / "ua" / "helper.py").write_text("from step import LIMIT\n")
    load(target)
    assert "step" not in sys.modules


def test_modules_by_name_come_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("ua", 16), ("ub", 32)):
        _folder(tmp_path, name, size)
        monkeypatch.chdir(tmp_path / name)
        assert f"tensor<{size}x{size}xf32>" in load("step:build").text


def test_modules_that_were_there_before_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = _folder(tmp_path, "ua", 16)
    monkeypatch.syspath_prepend(tmp_path / "ua")
    import common  # type: ignore[import-not-found]

    try:
        load(target)
        assert sys.modules["common"] is common
    finally:
        del sys.modules["common"]


def test_a_failing_target_leaves_nothing_behind(tmp_path: Path) -> None:
    from meshcast.base.errors import InputError

    target = _folder(tmp_path, "ua", 16, imports="raise RuntimeError('not today')")
    path = list(sys.path)
    with pytest.raises(InputError, match="not today"):
        load(target)
    assert sys.path == path
    assert "common" not in sys.modules


def test_nothing_that_user_code_writes_reaches_stdout(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import os, sys, jax, jax.numpy as jnp\n"
        "print('one')\n"
        "def step():\n"
        "    os.write(1, b'two')\n"
        "    os.system('echo three')\n"
        "    sys.__stdout__.write('four')\n"
        "    return jnp.sin, (jax.ShapeDtypeStruct((8,), 'float32'),)\n"
    )
    command = [sys.executable, "-m", "meshcast", "predict", f"{tmp_path}/loud.py:step", "--on", "h200", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["target"]["name"] == "step"
    assert all(word in done.stderr for word in ("one", "two", "three", "four"))


@pytest.mark.parametrize(
    ("code", "line", "said"),
    [
        ("SIZE = 1\nSIZE = undefined\ndef build(): pass\n", 2, "NameError: name 'undefined'"),
        ("import json\ndef build():\n    return json.loads('{')\n", 3, "build() failed: JSONDecodeError"),
        ("def build():\n    raise RuntimeError('mine')\n", 2, "build() failed: RuntimeError: mine"),
        ("def build(:\n    pass\n", 1, "SyntaxError"),
    ],
)
def test_what_the_users_code_raises_has_its_line(tmp_path: Path, code: str, line: int, said: str) -> None:
    (tmp_path / "step.py").write_text(code)
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        load(f"{tmp_path / 'step.py'}:build")
    assert str(caught.value.where).startswith(f"{tmp_path / 'step.py'}:{line} (")
