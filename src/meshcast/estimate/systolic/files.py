"""SCALE-Sim's own files: topologies (CSV) and configurations (INI), read and written."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from meshcast.base import InputError, UnsupportedError, UsageError
from meshcast.estimate.systolic.array import DATAFLOWS, ArrayBuffer, SystolicArray
from meshcast.estimate.systolic.layer import Layer

CONVOLUTION_COLUMNS = (
    "IFMAP Height", "IFMAP Width", "Filter Height", "Filter Width", "Channels", "Num Filter", "Strides",
)  # fmt: skip
GEMM_COLUMNS = ("M", "N", "K")
WORDS_PER_KB = 1024  # SCALE-Sim's words are bytes
MOST_CHANNELS = 1 << 16  # of a depthwise layer
DEPTHWISE = "DP"  # in a layer's name: one layer a channel


def read_layers(path: Path) -> list[Layer]:
    """Layers of a topology: rows of `name, M, N, K` or of `name` and the seven `CONVOLUTION_COLUMNS`, after a header.

    A cell behind the numbers (a sparsity ratio, which SCALE-Sim heeds with `SparsitySupport` alone, or a note) and a
    comma at the end are passed over, as SCALE-Sim does.

    Raises:
        InputError: The file cannot be read, or a row is not a layer.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the layers: {error}", where=str(path), fix="check the path") from error
    if lines and all(_is_integer(cell) for cell in _cells(lines[0])[1:4]) and len(_cells(lines[0])) > 3:
        raise InputError(
            "the first line is a layer, but SCALE-Sim's files begin with a header",
            where=f"{path}:1",
            fix="put a line such as 'Layer, M, N, K,' first",
        )
    layers = [
        layer
        for number, line in enumerate(lines[1:], start=2)
        if line.strip()
        for layer in _row(line, f"{path}:{number}")
    ]
    if not layers:
        raise InputError("no layers in the file", where=str(path), fix="one layer a row, after a header")
    return layers


def _cells(line: str) -> list[str]:
    cells = [cell.strip() for cell in line.split(",")]
    return cells[:-1] if cells and not cells[-1] else cells


def _is_integer(cell: str) -> bool:
    return re.fullmatch(r"[+-]?\d+", cell) is not None


def _row(line: str, where: str) -> Iterator[Layer]:
    name, *cells = _cells(line)
    count = next((i for i, cell in enumerate(cells) if not _is_integer(cell)), len(cells))
    if count not in (len(GEMM_COLUMNS), len(CONVOLUTION_COLUMNS)) or len(cells) > count + 1:
        raise InputError(
            f"{count} whole numbers and {len(cells) - count} other cells after the name {name!r} are not a layer",
            where=where,
            fix=f"give {', '.join(GEMM_COLUMNS)}, or {', '.join(CONVOLUTION_COLUMNS)}",
        )
    try:
        yield from layers_of([int(cell) for cell in cells[:count]], name=name)
    except UsageError as error:
        raise InputError(error.message, where=where, fix=error.fix) from error


def layers_of(sizes: Sequence[int], *, name: str = "") -> Iterator[Layer]:
    """The layer of M, N, K or of the numbers of `CONVOLUTION_COLUMNS`; a depthwise one is a layer a channel."""
    if len(sizes) == len(GEMM_COLUMNS):
        m, n, k = sizes
        yield Layer.gemm(m, n, k, name=name)
        return
    height, width, filter_height, filter_width, channels, filters, stride = sizes
    depthwise = DEPTHWISE in name
    if depthwise and channels > MOST_CHANNELS:
        raise UsageError(
            f"the depthwise layer {name!r} has {channels} channels, each a layer of its own: more than {MOST_CHANNELS}",
            fix="give fewer channels, or a name without DP",
        )
    for channel in range(channels if depthwise else 1):
        yield Layer(
            name=f"{name}Channel_{channel}" if depthwise else name,
            ifmap_height=height, ifmap_width=width, filter_height=filter_height, filter_width=filter_width,
            channels=1 if depthwise else channels, filters=filters, stride=stride,
        )  # fmt: skip


def topology_text(layers: Sequence[Layer]) -> str:
    """A topology of convolutions; SCALE-Sim reads products as convolutions too."""
    rows = ["Layer name, " + ", ".join(CONVOLUTION_COLUMNS) + ","]
    for number, layer in enumerate(layers):  # names of our own: one with DP in it would mean something
        sizes = (
            layer.ifmap_height, layer.ifmap_width, layer.filter_height, layer.filter_width, layer.channels,
            layer.filters, layer.stride,
        )  # fmt: skip
        rows.append(f"layer{number}, " + ", ".join(map(str, sizes)) + ",")
    return "\n".join(rows) + "\n"


def layout_text(layers: Sequence[Layer]) -> str:
    """A layout, which SCALE-Sim wants for every layer and looks at for custom layouts alone."""
    header = "Layer name, " + ", ".join(f"f{i}" for i in range(20)) + ","
    return "\n".join([header, *(f"layer{i}, " + "1, " * 19 + "1," for i in range(len(layers)))]) + "\n"


def config_text(array: SystolicArray) -> str:
    """A configuration of SCALE-Sim 3; operands' bandwidths are those of its SRAM banks."""
    kilobytes = []
    for what, buffer in (("ifmap", array.ifmap), ("filter", array.filter), ("ofmap", array.ofmap)):
        if buffer.words % WORDS_PER_KB:
            raise UsageError(
                f"SCALE-Sim takes scratchpads in whole kB of {WORDS_PER_KB} words: {what} has {buffer.words} words"
            )
        kilobytes.append(buffer.words // WORDS_PER_KB)
    mode = "CALC" if array.estimated_bandwidth else "USER"
    return f"""[general]
run_name = meshcast

[architecture_presets]
ArrayHeight: {array.rows}
ArrayWidth: {array.columns}
IfmapSramSzkB: {kilobytes[0]}
FilterSramSzkB: {kilobytes[1]}
OfmapSramSzkB: {kilobytes[2]}
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Bandwidth: {array.ofmap.bandwidth}
Dataflow: {array.dataflow}
MemoryBanks: 1
ReadRequestBuffer: 32
WriteRequestBuffer: 32

[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: {array.ifmap.bandwidth}
IfmapSRAMBankNum: 1
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: {array.filter.bandwidth}
FilterSRAMBankNum: 1
FilterSRAMBankPort: 2

[sparsity]
SparsitySupport: false
SparseRep: ellpack_block
OptimizedMapping: false
BlockSize: 8
RandomNumberGeneratorSeed: 40

[run_presets]
InterfaceBandwidth: {mode}
UseRamulatorTrace: False
"""


def read_config(path: Path) -> SystolicArray:
    """The array of a SCALE-Sim 3 configuration.

    Raises:
        InputError: The file cannot be read, or a value is missing or wrong.
        UnsupportedError: It asks for custom layouts, sparsity or Ramulator's latencies.
    """
    return _Config(path).array()


class _Config:
    """A configuration file, its values by section and key, mistakes with their lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parser = configparser.ConfigParser(interpolation=None)
        try:
            self._text = path.read_text(encoding="utf-8-sig")
            self._parser.read_string(self._text, source=str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot read the configuration: {error}", where=str(path), fix="check the path"
            ) from error
        except configparser.Error as error:
            line = getattr(error, "lineno", None) or next((n for n, _ in getattr(error, "errors", ())), None)
            where = f"{path}:{line}" if line else str(path)
            raise InputError(f"not a SCALE-Sim configuration: {error.message.splitlines()[0]}", where=where) from error

    def array(self) -> SystolicArray:
        """The array that it describes."""
        for section, key in (
            ("layout", "IfmapCustomLayout"), ("layout", "FilterCustomLayout"), ("sparsity", "SparsitySupport"),
            ("run_presets", "UseRamulatorTrace"),
        ):  # fmt: skip
            if self._chosen(section, key, {"true": True, "false": False}):
                raise UnsupportedError(
                    f"{key} is not modelled", where=self._place(section, key), fix=f"set {key} to False"
                )
        estimated = self._chosen("run_presets", "InterfaceBandwidth", {"user": False, "calc": True})
        dataflow = self._chosen("architecture_presets", "Dataflow", {name: name for name in DATAFLOWS})
        # In mode CALC nobody reads the bandwidth of outputs; SCALE-Sim takes the first of a list.
        ofmap = 1 if estimated else self._number("architecture_presets", "Bandwidth", first=True)
        buffers = {}
        for name, bandwidth in (
            ("Ifmap", self._bank("Ifmap", estimated)), ("Filter", self._bank("Filter", estimated)), ("Ofmap", ofmap),
        ):  # fmt: skip
            words = WORDS_PER_KB * self._number("architecture_presets", f"{name}SramSzkB")
            buffers[name.lower()] = ArrayBuffer(words=words, bandwidth=bandwidth)
        return SystolicArray(
            rows=self._number("architecture_presets", "ArrayHeight"),
            columns=self._number("architecture_presets", "ArrayWidth"),
            dataflow=dataflow,  # type: ignore[arg-type]  # one of DATAFLOWS
            estimated_bandwidth=bool(estimated),
            **buffers,
        )

    def _bank(self, operand: str, estimated: object) -> int:
        key = f"{operand}SRAMBankBandwidth"
        bandwidth, banks = self._number("layout", key), self._number("layout", f"{operand}SRAMBankNum")
        if bandwidth % banks and not estimated:
            raise InputError(
                f"{key} of {bandwidth} words is not divisible by {banks} banks", where=self._place("layout", key)
            )
        return bandwidth

    def _value(self, section: str, key: str) -> str:
        if not self._parser.has_option(section, key):
            raise InputError(f"[{section}] {key} is missing", where=str(self._path), fix=f"add {key} to [{section}]")
        return self._parser.get(section, key).strip()

    def _chosen(self, section: str, key: str, choices: dict[str, object]) -> object:
        value = self._value(section, key).lower()
        if value not in choices:
            raise InputError(
                f"{key} is {value!r}", where=self._place(section, key), fix="one of " + ", ".join(choices)
            )  # fmt: skip
        return choices[value]

    def _number(self, section: str, key: str, *, first: bool = False) -> int:
        value = self._value(section, key)
        value = value.split(",")[0].strip() if first else value
        if not re.fullmatch(r"\d+", value) or int(value) < 1:
            raise InputError(f"{key} is {value!r}, not a positive whole number", where=self._place(section, key))
        return int(value)

    def _place(self, section: str, key: str) -> str:
        inside = False
        for number, line in enumerate(self._text.splitlines(), start=1):
            heading = re.match(r"\s*\[(.+)\]", line)
            inside = heading[1].strip() == section if heading else inside
            if inside and re.match(rf"\s*{re.escape(key)}\s*[:=]", line, re.IGNORECASE):
                return f"{self._path}:{number}"
        return str(self._path)
