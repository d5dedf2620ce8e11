"""`meshcast doctor`: what is installed, what is missing, and the line that installs it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from typing import Annotated, Literal

import typer

from meshcast.base import VERSION, how_to_install, pip_install, tell
from meshcast.cli import arguments as flags

SCHEMA = "meshcast.doctor/1"
PIPED = 200  # columns of what is written where there is no terminal: room for a path on one line
TO_READ = "build "  # what to do in words, where no single command does it
# As in pyproject.toml: the releases whose MLIR bindings and Shardy passes this version was written for.
JAX_FIRST, JAX_BEYOND = (0, 10, 2), (0, 13)
JAX_RANGE = "0.10.2 to 0.12"
JAX_RELEASES = "'jax>=0.10.2,<0.13' 'jaxlib>=0.10.2,<0.13'"

# Two devices that each hold half of the contracted dimension: Shardy has to insert an all-reduce.
SHARDED_PRODUCT = """
module @product attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%a: tensor<64x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
                         %b: tensor<64x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
      -> (tensor<64x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    return %0 : tensor<64x64xf32>
  }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at; without a `core` one meshcast cannot predict at all."""

    name: str
    state: Literal["ok", "missing", "broken"]
    detail: str
    fix: str | None = None
    core: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalPart:
    """An optional part: the distribution to look for, and requirements that bring it along."""

    name: str
    purpose: str
    brought_by: tuple[str, ...] = ()


PARTS = (
    OptionalPart(name="libtpu", purpose="compiling for TPUs without one", brought_by=("libtpu", "jax[tpu]")),
    OptionalPart(
        name="jax-cuda12-plugin", purpose="measuring on NVIDIA GPUs", brought_by=("jax-cuda12-plugin", "jax[cuda12]")
    ),
    OptionalPart(name="torch", purpose="capturing PyTorch programs", brought_by=("torch",)),
    OptionalPart(name="torchax", purpose="capturing PyTorch programs", brought_by=("torchax",)),
    OptionalPart(
        name="aiconfigurator-core",
        purpose="kernels measured on other GPUs (validate silicon)",
        brought_by=("aiconfigurator-core",),
    ),
    OptionalPart(name="ray", purpose="searching on many machines", brought_by=("ray",)),
    OptionalPart(name="perfetto", purpose="writing Perfetto timelines", brought_by=("perfetto",)),
    OptionalPart(name="pyarrow", purpose="runs of searches as Parquet", brought_by=("pyarrow",)),
    OptionalPart(name="optuna", purpose="samplers for large searches", brought_by=("optuna",)),
    OptionalPart(
        name="matplotlib", purpose="pictures of predictions and searches (--plot)", brought_by=("matplotlib",)
    ),
    OptionalPart(name="fastapi", purpose="the page in a browser (meshcast serve)", brought_by=("fastapi",)),
    OptionalPart(name="uvicorn", purpose="the page in a browser (meshcast serve)", brought_by=("uvicorn",)),
)


def doctor_command(
    install: Annotated[
        str | None,
        typer.Option(
            "--install",
            metavar="NAME",
            help="Install gpu-compiler, or a simulator of others (scalesim, zigzag), in a folder of its own.",
        ),
    ] = None,
    json: flags.Json = False,
) -> None:
    """Checks what is installed and what is missing; exits with 4 when the core does not work."""
    if install is not None:
        _install(install)
    from meshcast.cli.patience import patience

    checks: list[Check] = []
    with patience("checking"):
        for check in all_checks():
            tell(f"{1 + len(checks)} checked, last {check.name}")
            checks.append(replace(check, fix=None) if check.state == "ok" else check)
    works = all(check.state == "ok" for check in checks if check.core)
    if json:
        from meshcast.cli.app import emit_json

        emit_json({"schema": SCHEMA, "ok": works, "checks": [asdict(check) for check in checks]})
    else:
        _print(checks, works)
    if not works:
        raise typer.Exit(4)


def _install(name: str) -> None:
    from meshcast.base import UsageError, nearest
    from meshcast.cli.patience import patience
    from meshcast.estimate import ENVIRONMENTS
    from meshcast.lower import GPU_COMPILER, install_gpu_compiler

    known = {
        **{each: environment.install for each, environment in ENVIRONMENTS.items()},
        GPU_COMPILER: install_gpu_compiler,
    }
    if name not in known:
        raise UsageError(f"nothing to install is named {name!r}", where="--install", fix=nearest(name, known))
    with patience(f"installing {name}"):
        known[name]()


def _print(checks: list[Check], works: bool) -> None:
    # Straight to rich: our own printer imports jaxlib, and must not be what fails where jaxlib is broken.
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table

    # A pipe has no width: 80 columns would cut the paths that a file can hold.
    piped = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED
    console = Console(markup=False, emoji=False, highlight=False, width=piped)
    verdict = "everything that a prediction needs works" if works else "predictions do not work: see what is not ok"
    styles = {"ok": "", "missing": "yellow", "broken": "bold red"}
    for title, core in ((f"Core: {verdict}", True), ("\nOptional parts", False)):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for number in range(3):  # what is longer than its line goes on in the next one: paths are copied
            table.add_column(overflow="fold", no_wrap=number < 2)
        for check in checks:
            if check.core is core:
                # What nothing asks for yet is no cause for alarm.
                style = styles[check.state] if core or check.fix else "dim"
                table.add_row(check.name, check.state, check.detail, style=style)
        console.print(title, style="bold")
        console.print(Padding(table, (0, 0, 0, 2), expand=False))
    # Commands are copied: each stands on a line of its own, whole, whatever the width is. Sentences are wrapped.
    fixes: dict[str, list[str]] = {}
    for check in checks:
        if check.fix:
            fixes.setdefault(check.fix, []).append(check.name)
    if fixes:
        console.print("\nWhat brings the missing ones", style="bold")
    for fix, names in fixes.items():
        console.print(f"  {', '.join(names)}:", soft_wrap=True)
        if fix.startswith(TO_READ):
            console.print(Padding(fix, (0, 0, 0, 4), expand=False))
        else:
            console.print(f"    {fix}", soft_wrap=True)


def all_checks() -> Iterator[Check]:
    """Every check, the core first."""
    yield _python()
    yield Check(name="meshcast", state="ok", detail=VERSION)
    yield _jax("jax")
    yield _jax("jaxlib")
    yield _tried("shardy", _partition, "reinstall jaxlib: " + _jax_fix())
    yield from _estimators()
    yield _tried("networks", _networks, "reinstall meshcast")
    yield _catalogue("devices")
    yield _catalogue("clusters")
    yield _tried("prediction", _predict, "see the lines above")
    for part in PARTS:
        yield _optional(part)
    yield _gpu_compiler()
    yield from _simulators()


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    state: Literal["ok", "broken"] = "ok" if sys.version_info >= (3, 11) else "broken"
    return Check(name="python", state=state, detail=f"{version} at {sys.executable}", fix="use Python 3.11 or newer")


def _jax(name: str) -> Check:
    version = _installed(name)
    if version is None:
        return Check(name=name, state="missing", detail=f"meshcast needs {JAX_RANGE}", fix=_jax_fix())
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    if JAX_FIRST <= numbers < JAX_BEYOND:
        return Check(name=name, state="ok", detail=f"{version}, within {JAX_RANGE}")
    return Check(name=name, state="broken", detail=f"{version} is outside {JAX_RANGE}", fix=_jax_fix())


def _jax_fix() -> str:
    return f"{pip_install()} {JAX_RELEASES}"


def _tried(name: str, attempt: Callable[[], str], fix: str) -> Check:
    try:
        return Check(name=name, state="ok", detail=attempt())
    except Exception as error:  # whatever is wrong with an installation is an answer here
        return Check(name=name, state="broken", detail=_first_line(error), fix=fix)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _partition() -> str:
    from meshcast.partition import partition
    from meshcast.programs import from_bytes

    local = partition(from_bytes(SHARDED_PRODUCT.encode(), name="product", where="doctor"))
    if "all_reduce" not in local.text:
        raise RuntimeError("a sharded product was partitioned without its all-reduce")
    return "partitions a program for 2 devices in its child process"


def _estimators() -> Iterator[Check]:
    registered = _tried("estimators", _names, "reinstall meshcast")
    yield registered
    for name in registered.detail.split(", ") if registered.state == "ok" else ():
        found = _tried(f"estimator {name}", partial(_load, name), f"reinstall the package that registers {name}")
        # One plugin that fails leaves the others usable; without the roofline there is nothing to fall back on.
        yield replace(found, core=name == "roofline")


def _names() -> str:
    from meshcast.estimate import estimator_names

    names = estimator_names()
    if not names:
        raise RuntimeError("none is registered")
    return ", ".join(names)


def _load(estimator: str) -> str:
    from meshcast.estimate import load_estimator

    return f"fidelity {load_estimator(estimator).fidelity}"


def _networks() -> str:
    from meshcast.network import NETWORK_MODELS

    return ", ".join(NETWORK_MODELS)


def _catalogue(folder: Literal["devices", "clusters"]) -> Check:
    from meshcast import hardware

    names = hardware.device_names() if folder == "devices" else hardware.cluster_names()
    broken = []
    for name in names:
        try:
            _ = hardware.load_device(name) if folder == "devices" else hardware.load_cluster(name)
        except Exception as error:  # every broken file is named, not only the first
            broken.append(f"{name} ({_first_line(error)})")
    if broken:
        return Check(name=folder, state="broken", detail=", ".join(broken), fix="reinstall meshcast")
    return Check(name=folder, state="ok" if names else "missing", detail=f"{len(names)} load", fix="reinstall meshcast")


def _predict() -> str:
    from meshcast.base import format_time
    from meshcast.jobs import predict
    from meshcast.programs import from_bytes

    program = from_bytes(SHARDED_PRODUCT.encode(), name="product", where="doctor")
    prediction = predict(program, on="h100-sxm", fidelity="roofline", levers=False)
    return f"a product over 2 h100-sxm: {format_time(prediction.step_time_s or 0.0)}"


def _gpu_compiler() -> Check:
    from meshcast.lower import GPU_COMPILER, HOW_TO_INSTALL_GPU_COMPILER, found_gpu_compiler

    found, purpose = found_gpu_compiler(), "compiling for NVIDIA GPUs without one (--fidelity compiled, auto)"
    if isinstance(found, str):
        return Check(
            name=GPU_COMPILER,
            state="missing",
            detail=f"{found}; {purpose}",
            fix=HOW_TO_INSTALL_GPU_COMPILER,
            core=False,
        )
    return Check(
        name=GPU_COMPILER, state="ok", detail=f"{found.release} at {found.library.parent}; {purpose}", core=False
    )


def _simulators() -> Iterator[Check]:
    """Simulators of others: programs on the PATH, and those in environments of their own."""
    from meshcast.estimate import ENVIRONMENTS
    from meshcast.network import ASTRA_SIM_PROGRAMS, ASTRA_SIM_PURPOSE, HOW_TO_GET_ASTRA_SIM, program_path

    for backend, program in ASTRA_SIM_PROGRAMS.items():
        path = program_path(backend)
        detail = f"{path or program}; {ASTRA_SIM_PURPOSE}"
        name = f"astra-sim, congestion {backend.lower()}"
        yield Check(name=name, state="ok" if path else "missing", detail=detail, fix=HOW_TO_GET_ASTRA_SIM, core=False)

    for name, environment in ENVIRONMENTS.items():
        release = environment.release()
        detail = f"{release} at {environment.python}; {environment.purpose}" if release else environment.purpose
        fix = f"meshcast doctor --install {name}"
        yield Check(name=name, state="ok" if release else "missing", detail=detail, fix=fix, core=False)


def _optional(part: OptionalPart) -> Check:
    version = _installed(part.name)
    extra = _extra(part.brought_by)
    used = part.purpose if extra else "not used by this version"
    if version is not None:
        return Check(name=part.name, state="ok", detail=f"{version}; {used}", core=False)
    fix = how_to_install(extra) if extra else None
    return Check(name=part.name, state="missing", detail=used, fix=fix, core=False)


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _extra(brought_by: tuple[str, ...]) -> str | None:
    """The extra of meshcast that declares one of these requirements: of several, the one that brings the least beside it."""
    declared: dict[str, set[str]] = {}
    for requirement in metadata.requires("meshcast") or ():
        extra = re.search(r"""extra == ['"]([^'"]+)""", requirement)
        name = re.match(r"[\w.-]+(\[[\w,]+\])?", requirement)
        if extra and name:
            declared.setdefault(extra[1], set()).add(name[0].lower())
    bringing = [extra for extra, names in declared.items() if not names.isdisjoint(brought_by)]
    return min(bringing, key=lambda extra: len(declared[extra]), default=None)
