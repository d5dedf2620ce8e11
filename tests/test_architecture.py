"""The house keeps its plan: which package may know which, and that they meet at their doors (`docs/architecture.md`)."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "meshcast"
PAGE = PACKAGE.parents[1] / "docs" / "architecture.md"

# Every package, in the order of the data's way, with the packages that it may import, for type checkers alone included.
MAY_IMPORT = {
    "base": "",
    "hardware": "base",
    "zoo": "base",
    "chakra": "base",
    "programs": "base zoo",
    "partition": "base programs",
    "workload": "base zoo programs partition",
    "lower": "base hardware zoo programs partition workload",
    "estimate": "base hardware workload lower",
    "network": "base hardware chakra workload",
    "simulate": "base hardware workload lower estimate network",
    "results": "base hardware zoo network simulate",
    "options": "base hardware zoo programs workload lower estimate network simulate",
    "jobs": "base hardware zoo chakra programs partition workload lower estimate network simulate results options",
    "evidence": "base hardware zoo programs partition workload lower estimate network simulate results options jobs",
    "traces": "base hardware zoo chakra programs workload lower estimate network simulate results options jobs evidence",
    "explore": "base hardware zoo programs results options jobs",
    "report": "base hardware programs workload lower estimate simulate results options jobs traces explore",
    "serve": "base hardware zoo programs lower options jobs explore report",
    "cli": "base hardware zoo chakra programs partition lower estimate network results options jobs evidence traces "
    "explore report serve",
}
# Modules whose types have the next stages as methods (`program.partition()`): packages that lie behind theirs and that they
# import in such a method, when it is called, or for the types in its signature.
LEADS_TO = {
    "programs/program.py": "hardware partition workload options jobs",
    "workload/workload.py": "lower",
    "lower/kernel.py": "options jobs",
}
# Modules that other packages take as such, because their functions read best behind the module's name.
MODULES_AT_DOORS = {("programs", "mlir"), ("hardware", "document"), ("hardware", "loader"), ("partition", "shardy")}
# Imports by a text that is put together elsewhere, by the file and the text: where it comes from.
BY_A_TEXT = {
    ("base/doors.py", "home"): "the lines of a stub, which another test looks at",
    ("estimate/outside/__init__.py", "module"): "a table of whole names, which are seen as texts",
    ("estimate/simulator_names.py", "module"): "a table of whole names, which are seen as texts",
    ("estimate/measurements/silicon.py", "name"): "two names of pyarrow's",
    ("programs/gpu_questions.py", "name"): "modules of JAX's",
    ("programs/pytorch/library.py", "name"): "torch and torchax",
    ("programs/user_code.py", "head"): "a module of the user's own",
}
# Lines that a module may have without a reason, and at most.
LONG, TOO_LONG = 400, 800
LONG_FOR_A_REASON: dict[str, str] = {
    "lower/pass_tables.py": "one table of all passes, a few lines each, in their order"
}
# Modules that a folder may have without a reason: a reader looks through their names.
MANY = 40
MANY_FOR_A_REASON = {"cli": "a module a verb"}

FRONTS = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}  # of the whole: they name what lies anywhere in it
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path not in FRONTS)
DOORS = sorted(PACKAGE.rglob("__init__.pyi"))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


# What is looked at: all of a module's in one walk, which takes longer than anything that is asked of them.
_LOOKED_AT = (ast.Import, ast.ImportFrom, ast.Constant, ast.JoinedStr, ast.Call, ast.ClassDef)


def _nodes(tree: ast.AST) -> list[ast.AST]:
    return [node for node in ast.walk(tree) if isinstance(node, _LOOKED_AT)]


@cache
def _nodes_of(path: Path) -> list[ast.AST]:
    return _nodes(_tree(path))


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Modules of ours that are imported from, at any depth, and the names that are; a relative one by its dots."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "meshcast"):
            yield from (("." * node.level + (node.module or ""), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "meshcast")


def _reached(nodes: Iterable[ast.AST], tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What is taken of packages behind their names: `base.errors` of `from meshcast import base`, as if it were imported."""
    bound: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "meshcast":
            bound |= {alias.asname or alias.name: f"meshcast.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            ours = [alias for alias in node.names if alias.name.split(".")[0] == "meshcast"]
            bound |= {alias.asname or "meshcast": alias.name if alias.asname else "meshcast" for alias in ours}
    for node in ast.walk(tree) if bound else ():
        if isinstance(node, ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            home, _, name = ".".join((bound.get(first, ""), *rest)).rpartition(".")
            if home.count(".") < 2 and home.startswith(
                "meshcast"
            ):  # what is behind a name at the door is its own matter
                yield home, name


def _named(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Modules of ours that texts name, whole (`"meshcast.serve.worker"`) or by how they begin (`f"meshcast.zoo.{name}"`).

    By such a text a module is imported (`import_module`, `__import__`), run (`python -m`), or its files are read.
    """
    for node in nodes:
        begun = isinstance(node, ast.JoinedStr)
        text = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            continue
        whole = text.value.partition(":")[0]  # `module:name`, as entry points have it
        if begun:
            whole += "x" if whole.endswith(".") else ""  # some module of it
        if not re.fullmatch(r"meshcast(\.\w+)+", whole):
            continue
        place = PACKAGE.parent.joinpath(*whole.split("."))
        there = place.parent if begun else place
        if there != PACKAGE and (there.is_dir() or there.with_suffix(".py").exists()):
            yield whole, ""


_IMPORTERS = {"import_module", "__import__", "find_spec", "resolve_name", "run_module"}


def _hidden(tree: ast.AST) -> Iterator[str]:
    """Texts by which something is imported that do not say the package of ours, or that are put together: nobody sees what comes.

    A whole name is seen (`"jaxlib"`), and so is one that says at least the package (`f"meshcast.zoo.{name}"`).
    """
    called = set()
    renamed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            renamed |= {alias.asname for alias in node.names if alias.name in _IMPORTERS and alias.asname}
        elif isinstance(node, ast.Call) and _name(node.func) in _IMPORTERS | renamed:
            called.add(node.func)
            given = [*node.args[:1], *(each.value for each in node.keywords if each.arg in (None, "name", "mod_name"))]
            yield from (ast.unparse(each) for each in given if not _is_seen(each))
    # A function that is handed on imports what nobody sees; its definition and its import are no uses.
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and _name(node) in _IMPORTERS | renamed and node not in called:
            yield ast.unparse(node)


def _name(node: ast.AST) -> str:
    return str(node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", ""))


def _is_seen(text: ast.expr) -> bool:
    if isinstance(text, ast.JoinedStr):
        begun = text.values[0] if text.values else None
        return isinstance(begun, ast.Constant) and bool(re.match(r"meshcast\.\w+\.", str(begun.value)))
    return isinstance(text, ast.Constant) and not str(text.value).startswith(".")


@cache
def _imports_of(path: Path) -> tuple[tuple[str, str], ...]:
    nodes = _nodes_of(path)
    return (*_imports(nodes), *_reached(nodes, _tree(path)), *_named(nodes))


def _at_once(tree: ast.Module) -> set[str]:
    """Packages of ours that a module imports as soon as it is imported itself."""
    found = (node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)))
    return {module.split(".")[1] for module, _ in _imports(found) if "." in module}


def _is_module(package: str, name: str) -> bool:
    folder = PACKAGE / package
    return bool(name) and ((folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists())


def test_packages_know_those_before_them_and_meet_at_their_doors() -> None:
    """All files in one test: a test for each would cost more than looking at it."""
    assert [each for path in FILES for each in _past_doors(path)] == []


def _past_doors(path: Path) -> Iterator[str]:
    """What a module imports that it may not, each as a sentence."""
    name_of_file = path.relative_to(PACKAGE).as_posix()
    own = name_of_file.partition("/")[0]
    behind = LEADS_TO.get(name_of_file, "").split()
    if _at_once(_tree(path)) & set(behind):
        yield f"{name_of_file}: the next stages are imported where they are asked for"
    for module, name in _imports_of(path):
        if module.startswith("."):
            yield f"{name_of_file}: {name} is imported from {module}: write the whole name"
            continue
        _, *parts = [*module.split("."), *([name] if module == "meshcast" else [])]
        package = parts[0]
        if package == own:
            continue
        taken = name if module != "meshcast" else ""
        if package not in (*MAY_IMPORT[own].split(), *behind):
            yield f"{name_of_file}: {own} does not know {package}, from which {name or module} comes"
        elif len(parts) > 1:
            yield f"{name_of_file}: {name} is imported from {module}, past the door of {package}"
        elif _is_module(package, taken) and (package, taken) not in MODULES_AT_DOORS:
            yield f"{name_of_file}: {package}.{taken} is a module"


def test_what_is_imported_past_a_door_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_architecture.PACKAGE", tmp_path)
    (tmp_path / "hardware").mkdir()
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "errors.py").write_text("")
    for number, (line, said) in enumerate(
        (
            ("from meshcast.base.errors import UsageError", "past the door of base"),
            ("from meshcast.jobs import predict", "hardware does not know jobs"),
            ("from ..base.errors import UsageError", "write the whole name"),
            ("from .. import base", "write the whole name"),
            ("from meshcast import base; base.errors.UsageError", "base.errors is a module"),
            ("import meshcast.base; meshcast.base.errors.UsageError", "base.errors is a module"),
            ("import meshcast.base as b; b.errors.UsageError", "base.errors is a module"),
            ("from meshcast import base as b; print(b.errors)", "base.errors is a module"),
            ("from meshcast import base; base.UsageError", ""),
            ("import meshcast.base as b; b.UsageError('x').where", ""),
            ("from meshcast.base import UsageError", ""),
        )
    ):
        path = tmp_path / "hardware" / f"module_{number}.py"
        path.write_text(line)
        found = list(_past_doors(path))
        assert bool(found) == bool(said), line
        assert said in " ".join(found), line


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ('import_module("meshcast.lower.fusion.backward_sweep")', ["meshcast.lower.fusion.backward_sweep"]),
        ('__import__("meshcast.lower")', ["meshcast.lower"]),
        ('PLACES = {"a": ("meshcast.estimate.outside.zigzag", "Zigzag")}', ["meshcast.estimate.outside.zigzag"]),
        ('import_module(f"meshcast.zoo.{name}")', ["meshcast.zoo.x"]),
        ('import_module(f"meshcast.evidence.calibrate.families.{name}")', ["meshcast.evidence.calibrate.families.x"]),
        ('MAKER = "meshcast.estimate.roofline:Roofline"', ["meshcast.estimate.roofline"]),
        ('SCHEMA = "meshcast.stack/1"; ATTRIBUTE = "meshcast.trip_count"', []),
    ],
)
def test_imports_by_a_text_are_seen(source: str, seen: list[str]) -> None:
    assert [module for module, _ in _named(_nodes(ast.parse(source)))] == seen


@pytest.mark.parametrize(
    ("source", "hidden"),
    [
        ('import_module(f"meshcast.{name}")', 1),
        ('import_module("meshcast." + name)', 1),
        ('import_module(".fusion", "meshcast.lower")', 1),
        ('import_module("jaxlib")', 0),
        ('import_module(f"{ROOT}.lower.fusion")', 1),
        ("import_module(f\"{__name__.partition('.')[0]}.lower.fusion\")", 1),
        ('import_module(name=".lower.fusion", package="meshcast")', 1),
        ('import_module("%s.lower.fusion" % ROOT)', 1),
        ('import_module("meshcast.%s.fusion" % name)', 1),
        ('import_module("{}.lower.fusion".format(ROOT))', 1),
        ("import_module(name)", 1),
        ("import_module(**how)", 1),
        ("list(map(importlib.import_module, names))", 1),
        ('from importlib import import_module as load; load(f"{ROOT}.lower.fusion")', 1),
        ('import_module(name="jaxlib")', 0),
        ('import_module(f"meshcast.zoo.{name}")', 0),
    ],
)
def test_imports_by_a_text_say_the_package(source: str, hidden: int) -> None:
    assert len(list(_hidden(ast.parse(source)))) == hidden


def test_no_import_is_hidden_in_a_text() -> None:
    """Where one is, its place says from where the text comes."""
    files = [path for path in FILES if any(each in path.read_text(encoding="utf-8") for each in _IMPORTERS)]
    found = {(path.relative_to(PACKAGE).as_posix(), text) for path in files for text in _hidden(_tree(path))}
    assert found == set(BY_A_TEXT)


def test_every_package_has_a_place_and_comes_after_those_it_knows() -> None:
    assert set(MAY_IMPORT) == {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert {path.name for path in PACKAGE.glob("*.py")} == {path.name for path in FRONTS}
    order = list(MAY_IMPORT)
    for package, others in MAY_IMPORT.items():
        assert all(order.index(other) < order.index(package) for other in others.split())


def test_no_package_may_import_what_it_never_does() -> None:
    used: dict[str, set[str]] = {package: set() for package in MAY_IMPORT}
    for path in FILES:
        own = path.relative_to(PACKAGE).parts[0]
        for module, name in _imports_of(path):
            used[own].add(module.split(".")[1] if "." in module else name)
    assert {package: set(others.split()) - used[package] for package, others in MAY_IMPORT.items()} == {
        package: set() for package in MAY_IMPORT
    }
    for module, others in LEADS_TO.items():
        nodes = _nodes_of(PACKAGE / module)
        assert set(others.split()) <= {home.split(".")[1] for home, _ in _imports(nodes) if "." in home}


@pytest.mark.parametrize("stub", DOORS, ids=lambda path: str(path.parent.relative_to(PACKAGE.parent)))
def test_what_a_door_names_is_there_under_its_own_name(stub: Path) -> None:
    """Type checkers read the stub whole, `door` line by line: both must see the same; no name may also be a module's."""
    package = ".".join(stub.parent.relative_to(PACKAGE.parent).parts)
    module = importlib.import_module(package)
    named: dict[str, str] = {}
    listed: list[str] = []
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign):
            continue  # a type of what `__init__.py` has itself
        if isinstance(node, ast.Assign):
            assert ast.unparse(node.targets[0]) == "__all__"
            listed = ast.literal_eval(node.value)
            continue
        assert isinstance(node, ast.ImportFrom), f"{package}: a door has imports alone"
        for alias in node.names:
            assert alias.asname is not None
            named[alias.asname] = f"{node.module}.{alias.name}"
    old = {name for name in named if re.search(rf"as {name}  # old name: \w", stub.read_text(encoding="utf-8"))}
    assert not listed or set(listed) == {*module.__all__, *old}
    renamed = [name for name, place in named.items() if place.rpartition(".")[2] != name]
    assert not renamed or listed, f"{package}: type checkers know {renamed} only where __all__ lists them"
    assert set(named) - old == set(module.__all__) - {"__version__"}
    for name, place in named.items():
        home, _, original = place.rpartition(".")
        assert getattr(module, name) is getattr(importlib.import_module(home), original)
        inside = stub.parent.relative_to(PACKAGE)
        assert not _is_module(str(inside), name), f"{package}.{name} is a module as well: which of them is meant?"


def test_a_name_that_no_door_has_is_missed_as_anywhere() -> None:
    lower = importlib.import_module("meshcast.lower")
    with pytest.raises(AttributeError, match=r"module 'meshcast\.lower' has no attribute 'Fusions'"):
        lower.Fusions  # noqa: B018
    assert "Fusion" in dir(lower)


def test_the_page_on_the_architecture_has_every_package() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {package for package in MAY_IMPORT if f"`{package}/`" not in page} == set()


def test_the_files_on_the_page_are_there_with_the_types_beside_them() -> None:
    """Paths as the page writes them, below the package or the checkout; a row of the first table has types of its last file."""
    page = PAGE.read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py)?)`", page))
    assert len(paths) > 40
    assert {
        path for path in paths if not any((above / path).exists() for above in (PACKAGE, PACKAGE.parents[1]))
    } == set()
    rows = [line.split(" | ") for line in page.split("## The way of the data")[1].split("\n\n")[1].splitlines()[2:]]
    assert len(rows) > 8
    for _, _, gives, _, homes in rows:
        source = "".join((PACKAGE / path).read_text(encoding="utf-8") for path in re.findall(r"`([^`]+\.py)`", homes))
        missing = [name for name in re.findall(r"`([A-Z]\w+?)`s?", gives) if f"class {name}" not in source]
        assert not missing, f"{homes} does not define {missing}"


# `options` is also what a variable is called.
NAMED = re.compile(rf"`((?:{'|'.join(sorted(set(MAY_IMPORT) - {'options'}))})(?:\.[a-z_]+)+)(?:\.[A-Z]\w*)?`")
ENDINGS = ("md", "yml", "toml", "json", "txt", "html")


def test_modules_that_texts_name_are_there() -> None:
    """`lower.fusion.backward_sweep`, `jobs.levers.fitting`, `zoo.words.Remat` in docstrings, comments and pages: modules, or
    names in them.
    """
    missing = []
    for path in [*FILES, *PAGE.parent.glob("*.md")]:
        for name in NAMED.findall(path.read_text(encoding="utf-8")):
            parts = name.split(".")
            if parts[-1] in ENDINGS:
                continue
            home = next(
                place
                for count in range(len(parts), 0, -1)
                for place in (PACKAGE.joinpath(*parts[:count]), PACKAGE.joinpath(*parts[:count]).with_suffix(".py"))
                if place.exists()
            )
            rest = parts[len(home.relative_to(PACKAGE).with_suffix("").parts) :]
            files = [home] if home.is_file() else [*home.glob("__init__.py*")]
            if rest and not any(re.search(rf"\b{rest[0]}\b", file.read_text(encoding="utf-8")) for file in files):
                missing.append(f"{path.name}: {name}")
    assert missing == []


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in _nodes_of(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_alias_has_the_name_of_a_class_at_a_door() -> None:
    """`Plan = list[PlacedTable]` in one module would be taken for the `Plan` that everybody imports."""
    homes: dict[str, set[Path]] = {}
    for stub in PACKAGE.glob("*/__init__.pyi"):
        for module, name in _imports(_nodes_of(stub)):
            homes.setdefault(name, set()).add(PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py"))
    classes = {node.name for path in FILES for node in _nodes_of(path) if isinstance(node, ast.ClassDef)}
    wrong = []
    for path in FILES:
        for node in _tree(path).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            name = target.id if isinstance(target, ast.Name) else ""
            local = isinstance(getattr(node, "value", None), ast.Call)  # a type variable, which no other module sees
            if name in homes.keys() & classes and not local and {path} != homes[name]:
                wrong.append(f"{path.relative_to(PACKAGE)}: {name}")
    assert wrong == []


def test_modules_stay_small() -> None:
    """More than 400 lines ask for a reason, 800 are a defect."""
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name for name, count in lines.items() if count > LONG} == set(LONG_FOR_A_REASON)
    assert max(lines.values()) <= TOO_LONG


def test_folders_stay_small() -> None:
    counts = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in FILES if path.name != "__init__.py")
    assert {name for name, count in counts.items() if count > MANY} == set(MANY_FOR_A_REASON)
