"""Every kind of input that meshcast reads, with the commands that read it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.fuzz import seeds
from tests.fuzz.mutations import mutated_bytes, mutated_text
from tests.fuzz.worker import CALL

PLACE = "{}"  # stands for the input's path


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One kind of input.

    Attributes:
        name: Its name, for `--only` and the summary.
        weight: Its share of all inputs.
        suffix: What its files end in; without one, the input is a command line, an argument a line.
        seeds: The good inputs that mutations start from, made when they are first asked for.
        commands: The command lines to choose from, with `{}` for the input's path.
        patience: Times the limit of CPU seconds: of simulators and of files that name models, which a short line can ask for
            much: a configuration of 896 layers is 20 s of work in a kilobyte.
        text: Whether it is mutated as text; packed text and bytes are unpacked first.
    """

    name: str
    weight: int
    seeds: Callable[[], Sequence[bytes]]
    commands: Sequence[str]
    suffix: str = ""
    text: bool = True
    patience: float = 1.0

    def mutated(self, rng: Random) -> bytes:
        """An input: a seed after mutations; of what is packed, mostly what is inside."""
        data, other = rng.choice(self.seeds()), rng.choice(self.seeds())
        if not _packed(data):
            return self._changed(data, _unpacked(other), rng)
        if rng.random() < 0.1:
            return mutated_bytes(data, other, rng)
        return gzip.compress(self._changed(_unpacked(data), _unpacked(other), rng), 1, mtime=0)

    def _changed(self, data: bytes, other: bytes, rng: Random) -> bytes:
        if not self.text or rng.random() < 0.03:
            return mutated_bytes(data, other, rng)
        text = mutated_text(data.decode(errors="replace"), other.decode(errors="replace"), rng)
        return text.encode(errors="surrogateescape")

    def arguments(self, data: bytes, path: str, rng: Random) -> list[str]:
        """The command that reads the input at `path`."""
        command = rng.choice(self.commands)
        if self.suffix:
            return [word.replace(PLACE, path) for word in command.split()]
        # A mutated command line keeps its verb: others measure, install or serve.
        words = data.decode(errors="replace").replace("\0", "").split("\n")
        kept = (word for word in words if word not in ("-o", "--out", "--export-astra"))
        return [*command.split(), "--json", *kept]


def _packed(data: bytes) -> bool:
    return data[:2] == b"\x1f\x8b"


def _unpacked(data: bytes) -> bytes:
    return gzip.decompress(data) if _packed(data) else data


def _command_lines(*lines: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [line.replace(" ", "\n").encode() for line in lines]


_PREDICT = ("predict {} --on h200 --json", "predict {} --on h200 --json", "predict {} --on dgx-h100 --json", "show {} --json",
            "predict {} --on tpu-v5p-pod --json", "show {} --kernels --on mi300x --json")  # fmt: skip
_ON = ("predict ../seeds/tanh.mlir --on {} --json", "predict ../seeds/sharded.mlir --on {} --json")
_MEASURED = (
    "compare ../seeds/tanh.mlir --on h200 --steps 10 --measured {} --json",
    "compare ../seeds/tanh.mlir --on h200 --measured {} --json",
)
_PROFILED = ("predict ../seeds/tanh.mlir --on h200 --fidelity profiled --profile {} --json",)

READERS: tuple[Reader, ...] = (
    Reader(name="stablehlo", weight=50, suffix=".mlir", seeds=seeds.stablehlo, commands=_PREDICT),
    Reader(
        name="stablehlo-open",
        weight=6,
        suffix=".mlir",
        seeds=seeds.open_stablehlo,
        commands=("predict {} --on h200 --dim arg0.0=32 --json", "predict {} --on h200 --trip-count 5 --json"),
    ),
    Reader(name="hlo", weight=25, suffix=".hlo", seeds=seeds.hlo, commands=_PREDICT),
    Reader(name="bytecode", weight=12, suffix=".mlirbc", seeds=seeds.bytecode, commands=_PREDICT, text=False),
    Reader(name="portable", weight=6, suffix=".mlirbc", seeds=seeds.portable, commands=_PREDICT, text=False),
    Reader(name="exported", weight=6, suffix=".bin", seeds=seeds.exported, commands=_PREDICT, text=False),
    Reader(name="device", weight=10, suffix=".toml", seeds=seeds.devices, commands=_ON[:1]),
    Reader(
        name="cluster",
        weight=12,
        suffix=".toml",
        seeds=seeds.clusters,
        commands=(
            *_ON,
            "collective all_reduce --bytes 1MiB --on {} --json",
            "collective all_to_all --bytes 1KiB..4KiB --on {} --devices 8 --network flow --json",
        ),
    ),
    Reader(
        name="stack",
        weight=8,
        suffix=".toml",
        seeds=seeds.stacks,
        commands=("predict ../seeds/sharded.mlir --on dgx-h100 --stack {} --json",),
    ),
    Reader(
        name="fabric",
        weight=8,
        suffix=".toml",
        seeds=seeds.fabrics,
        commands=("collective all_reduce --bytes 1MiB --on dgx-h100 --devices 4 --network flow --fabric {} --json",),
    ),
    Reader(
        name="pipeline",
        weight=3,
        suffix=".toml",
        seeds=seeds.pipelines,
        commands=("predict {} --on dgx-h100 --json",),
        patience=4.0,
    ),
    Reader(
        name="astra-network",
        weight=8,
        suffix=".yml",
        seeds=seeds.astra_networks,
        commands=(
            "collective all_reduce --bytes 1MiB --on h100-sxm@{} --devices 16 --network astra --json",
            "collective all_gather --bytes 1MiB --on h100-sxm@{} --network astra-aware --json",
            "predict ../seeds/sharded.mlir --on h100-sxm@{} --json",
        ),
    ),
    Reader(
        name="astra-system",
        weight=3,
        suffix=".json",
        seeds=seeds.astra_systems,
        commands=(
            f"{CALL} meshcast.network.astra:read_system {{}}",
            f"{CALL} meshcast.network.astra:read_remote_memory {{}}",
        ),
    ),
    Reader(
        name="huggingface",
        weight=4,
        suffix=".json",
        seeds=seeds.huggingface,
        patience=4.0,
        commands=(
            "predict {} --on h200 --set batch=1 --set seq=128 --set mode=prefill --json",
            "predict {} --on h200 --set batch=1 --set seq=128 --set mode=forward --json",
        ),
    ),
    Reader(
        name="chakra",
        weight=10,
        suffix=".et",
        seeds=seeds.chakra,
        commands=("show {} --json", "predict {} --on dgx-h100 --json"),
        text=False,
    ),
    Reader(name="kineto", weight=6, suffix=".json", seeds=seeds.kineto, commands=_MEASURED),
    Reader(name="nsys", weight=6, suffix=".csv", seeds=seeds.nsys, commands=_MEASURED),
    Reader(name="xplane", weight=4, suffix=".xplane.pb", seeds=seeds.xplane, commands=_MEASURED, text=False),
    Reader(name="profile-npz", weight=4, suffix=".npz", seeds=seeds.profile_npz, commands=_PROFILED, text=False),
    Reader(name="profile-jsonl", weight=5, suffix=".profile.jsonl.gz", seeds=seeds.profile_jsonl, commands=_PROFILED),
    Reader(
        name="layers",
        weight=5,
        patience=8.0,
        suffix=".csv",
        seeds=seeds.layers,
        commands=(
            "systolic --rows 32 --cols 16 --dataflow os --layers {} --json",
            "systolic --rows 8 --cols 8 --dataflow ws --bandwidth 10 --layers {} --json",
        ),
    ),
    Reader(
        name="systolic-config",
        weight=4,
        patience=8.0,
        suffix=".cfg",
        seeds=seeds.systolic_configs,
        commands=("systolic --config {} --gemm 64,64,64 --json",),
    ),
    Reader(name="ops-csv", weight=3, suffix=".csv", seeds=seeds.op_rows, commands=("validate ops {} --json",)),
    Reader(
        name="collectives-csv",
        weight=3,
        suffix=".csv",
        seeds=seeds.collective_rows,
        commands=("validate collectives {} --json",),
    ),
    Reader(name="astra-csv", weight=3, suffix=".csv", seeds=seeds.astra_rows, commands=("validate astra {} --json",)),
    Reader(name="runs-csv", weight=2, suffix=".csv", seeds=seeds.run_rows, commands=("validate runs {} --json",)),
    Reader(
        name="placement",
        weight=2,
        suffix=".txt",
        seeds=lambda: [b"\n".join(b"%d" % (i ^ 1) for i in range(8))],
        commands=(
            "predict ../seeds/sharded.mlir --on dgx-h100 --placement {} --json",
            "collective all_gather --bytes 1MiB --on dgx-h100 --devices 8 --placement {} --network flow --json",
        ),
    ),
    Reader(name="words-predict", weight=10, seeds=_command_lines(*seeds.PREDICT_LINES), commands=("predict",)),
    Reader(
        name="words-plan",
        weight=5,
        seeds=_command_lines(*seeds.PLAN_LINES),
        commands=("predict gpt2-tiny --on dgx-h100",),
    ),
    Reader(name="words-collective", weight=8, seeds=_command_lines(*seeds.COLLECTIVE_LINES), commands=("collective",)),
    Reader(
        name="words-systolic",
        weight=6,
        patience=8.0,
        seeds=_command_lines(*seeds.SYSTOLIC_LINES),
        commands=("systolic",),
    ),
    Reader(name="words-show", weight=3, seeds=_command_lines(*seeds.SHOW_LINES), commands=("show",)),
    Reader(
        name="words-compare", weight=2, seeds=_command_lines(*seeds.COMPARE_LINES), commands=("compare --no-folder",)
    ),
)


def named(name: str) -> Reader:
    """The reader of that name."""
    return next(reader for reader in READERS if reader.name == name)
