"""Files of tables: CSV, JSON and TOML, ours or what torchrec's planner is told, and the lists that are shipped.

A CSV has a line a table, with columns named as the fields of `EmbeddingTable`; lines that begin with # say where it comes
from. JSON and TOML have a list `tables` of such objects. torchrec's names for the same things are understood:
`num_embeddings`, `embedding_dim`, `data_type` of an `EmbeddingBagConfig`; `pooling_factors`, `sharding_types` and
`cache_load_factor` of a table's `ParameterConstraints`, in the object itself or under `constraints` by the table's name.
"""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from importlib import resources
from pathlib import Path
from statistics import pstdev
from typing import Any

from meshcast.base import InputError, UsageError, json_value, nearest
from meshcast.jobs.embedding_tables.batch_files import sampled
from meshcast.jobs.embedding_tables.distribution import Distribution, parse_distribution
from meshcast.jobs.embedding_tables.table import ELEMENT_BYTES, STATE_BYTES, EmbeddingTable
from meshcast.jobs.embedding_tables.words import WAYS, element_named, way_named

MOST_TABLES = 100_000
MOST_ROWS = 10**13
_NAMES = {field.name for field in fields(EmbeddingTable)}
_OTHER_NAMES = {
    "num_embeddings": "rows", "embedding_dim": "dim", "data_type": "dtype", "pooling_factor": "pooling",
    "pooling_factors": "pooling", "sharding_types": "ways", "cache_load_factor": "cached", "zipf": "indices",
}  # fmt: skip
# Fields of torchrec's `EmbeddingBagConfig` and `ParameterConstraints` (1.8) that change nothing here.
_IGNORED = {
    "feature_names", "num_poolings", "batch_sizes", "compute_kernels", "weight_init_max", "weight_init_min", "init_fn",
    "need_pos", "num_embeddings_post_pruning", "input_dim", "total_num_buckets", "use_virtual_table",
    "virtual_table_eviction_policy", "enable_embedding_update", "stash_weights", "min_partition", "is_weighted",
    "enforce_hbm", "stochastic_rounding", "bounds_check_mode", "output_dtype", "device_group", "key_value_params",
}  # fmt: skip
# By FBGEMM's names (`OptimType`), as members and as values.
_OPTIMIZERS = {
    "exact_row_wise_adagrad": "rowwise-adagrad", "exact_rowwise_adagrad": "rowwise-adagrad",
    "row_wise_adagrad": "rowwise-adagrad", "exact_adagrad": "adagrad", "exact_sgd": "sgd",
    "partial_row_wise_adam": "rowwise-adam", "partial_rowwise_adam": "rowwise-adam",
}  # fmt: skip
_POOLINGS = {
    "sum": True,
    "mean": True,
    "none": False,
}  # torchrec's `PoolingType`: whether a sample's rows are summed up


def list_names() -> tuple[str, ...]:
    """The lists that are shipped."""
    folder = resources.files("meshcast.jobs.embedding_tables") / "lists"
    return tuple(sorted(each.name.removesuffix(".csv") for each in folder.iterdir() if each.name.endswith(".csv")))


def read_tables(source: str) -> tuple[EmbeddingTable, ...]:
    """The tables of a file, or of a shipped list by its name.

    Raises:
        UsageError, InputError: There is no such file, or it does not describe tables.
    """
    if source in list_names():
        text = (resources.files("meshcast.jobs.embedding_tables") / "lists" / f"{source}.csv").read_text(
            encoding="utf-8"
        )
        return _tables(_csv(text, source), source, Path())
    path = Path(source)
    if not path.is_file():
        raise UsageError(
            f"no file of tables {source!r}",
            where="TABLES",
            fix=f"give a CSV, JSON or TOML file; {nearest(source, list_names())}",
        )
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets begin a CSV with a mark of its encoding
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=source, fix="give a text file") from error
    if path.suffix.lower() == ".csv":
        return _tables(_csv(text, source), source, path.parent)
    return _tables(_objects(path, text), source, path.parent)


def _csv(text: str, where: str) -> list[tuple[str, dict[str, Any]]]:
    lines = [
        (number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")
    ]
    found = csv.DictReader(io.StringIO("\n".join(line for _, line in lines)), skipinitialspace=True)
    heads = [name.strip() for name in found.fieldnames or ()]
    if twice := [name for name in dict.fromkeys(heads) if heads.count(name) > 1]:
        raise InputError(f"two columns {twice[0]!r}", where=f"{where}:{lines[0][0]}", fix="name every column once")
    rows = []
    for (number, _), row in zip(lines[1:], found, strict=False):
        if None in row or None in row.values():
            raise InputError(
                "has another number of fields than the heading", where=f"{where}:{number}", fix="quote commas"
            )
        rows.append(
            (f"{where}:{number}", {name.strip(): value.strip() for name, value in row.items() if value.strip()})
        )
    return rows


def _objects(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    where = str(path)
    ending = path.suffix.lower()
    if ending not in (".json", ".toml") and not text.lstrip().startswith(("{", "[")):
        raise InputError(
            "is neither CSV, JSON nor TOML by its name, nor JSON by what it begins with", where=where,
            fix="name it .csv, .json or .toml",
        )  # fmt: skip
    try:
        content = tomllib.loads(text) if ending == ".toml" else json_value(text, where=where)
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(error), where=where, fix="write [[tables]] with rows = ..., dim = ...") from error
    constraints = content.get("constraints", {}) if isinstance(content, Mapping) else {}
    tables = content.get("tables") if isinstance(content, Mapping) else content
    if (
        not isinstance(tables, list)
        or not all(isinstance(each, dict) for each in tables)
        or not isinstance(constraints, Mapping)
    ):
        raise InputError("has no list of tables", where=where, fix='write {"tables": [{"rows": 1000, "dim": 64}]}')
    wrong = next((name for name, each in constraints.items() if not isinstance(each, Mapping)), None)
    if wrong is not None:
        fix = 'write "constraints": {"TABLE": {"ways": ["row"]}}'
        raise InputError(f"the constraints of {wrong!r} are no fields of a table", where=where, fix=fix)
    return [
        (f"{where}: table {number}", {**each, **_constraints(each.get("name"), constraints)})
        for number, each in enumerate(tables)
    ]


def _constraints(name: Any, constraints: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """What is said of a table by its name; one without a name is nobody's."""
    return {} if name is None else constraints.get(str(name), {})


def _tables(found: Sequence[tuple[str, dict[str, Any]]], source: str, folder: Path) -> tuple[EmbeddingTable, ...]:
    if not 0 < len(found) <= MOST_TABLES:
        raise InputError(f"{len(found):,} tables", where=source, fix=f"give 1 to {MOST_TABLES:,}")
    tables = [_table(each, number, where, folder) for number, (where, each) in enumerate(found)]
    names: dict[str, str] = {}
    for (where, _), table in zip(found, tables, strict=True):
        if table.name in names:
            raise InputError(f"a second table {table.name!r}", where=where, fix=f"the first is at {names[table.name]}")
        names[table.name] = where
    return tuple(tables)


def _table(found: Mapping[str, Any], number: int, where: str, folder: Path) -> EmbeddingTable:
    said: dict[str, Any] = {}
    called: dict[str, str] = {}
    for name, value in _ours(found, where):
        if value is None:
            continue
        known = _OTHER_NAMES.get(name, name)
        if called.setdefault(known, name) != name:
            raise InputError(f"{called[known]!r} and {name!r} say the same thing", where=where, fix="leave one out")
        if known in _NAMES:
            said[known] = f"zipf:{value}" if name == "zipf" else value
        elif name not in _IGNORED:
            raise InputError(f"unknown field {name!r}", where=where, fix=nearest(name, _NAMES))
    if missing := {"rows", "dim"} - set(said):
        raise InputError(f"no {' and no '.join(sorted(missing))}", where=where, fix="every table has rows and dim")
    if said.get("hits") is not None and said.get("cached") is None:
        raise InputError(
            "hits of no cache", where=where, fix="say with `cached` which share of the rows the device keeps"
        )
    rows = _whole(said["rows"], "rows", MOST_ROWS, where)
    pooling, spread = _pooling(said.get("pooling", 1.0), said.get("spread", 0.0), where)
    dtype = str(said.get("dtype", "f32"))
    optimizer = str(said.get("optimizer", "rowwise-adagrad")).lower()
    return EmbeddingTable(
        name=f"table_{number}" if said.get("name") is None else str(said["name"]),
        rows=rows,
        dim=_whole(said["dim"], "dim", 65536, where),
        pooling=pooling,
        spread=spread,
        dtype=_one_of(element_named(dtype), ELEMENT_BYTES, "dtype", where),
        optimizer=_one_of(_OPTIMIZERS.get(optimizer, optimizer.replace("_", "-")), STATE_BYTES, "optimizer", where),
        indices=_distribution(said.get("indices", "uniform"), rows, where, folder),
        pooled=_yes_or_no(said.get("pooled", True), "pooled", where),
        ways=_ways(said.get("ways", ()), where),
        cached=_share(said, "cached", where),
        hits=_share(said, "hits", where),
    )


def _ours(found: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """Fields that say something, torchrec's objects and words taken apart: `pooling` is a word there, not a number."""
    for name, value in found.items():
        if value is None:
            continue
        word = _member(value)
        if name == "pooling" and word in _POOLINGS:
            yield "pooled", _POOLINGS[word]
        elif name == "cache_params":
            if not isinstance(value, Mapping):
                raise InputError(f"cache_params is {value!r}", where=where, fix='write {"load_factor": 0.1}')
            yield "cached", value.get("load_factor")
        elif name in ("data_type", "dtype", "optimizer"):
            yield name, word if isinstance(value, str) else value
        else:
            yield name, value


def _member(value: Any) -> str:
    """A word, without the class that Python prints an enumeration's members with (`DataType.FP16`)."""
    return str(value).rpartition(".")[2].lower() if isinstance(value, str) else ""


def _distribution(value: Any, rows: int, where: str, folder: Path) -> Distribution:
    text = str(value)
    kind, _, rest = text.partition(":")
    if kind == "sample":
        path, _, table = rest.partition("#")
        return sampled(folder / path, table, where, rows=rows)
    return parse_distribution(text, where=where)


def _pooling(value: Any, spread: Any, where: str) -> tuple[float, float]:
    """The mean and the standard deviation of what a sample looks up; a list of factors, a feature each, is torchrec's."""
    if isinstance(value, list):
        factors = [_number(each, "pooling", 0.0, 1e6, where) for each in value]
        return (sum(factors), pstdev(factors)) if factors else (1.0, 0.0)
    return _number(value, "pooling", 0.0, 1e6, where), _number(spread, "spread", 0.0, 1e6, where)


def _ways(value: Any, where: str) -> tuple[str, ...]:
    words = value.replace("|", " ").split() if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)):
        raise InputError(f"ways is {value!r}", where=where, fix="name some of " + ", ".join(WAYS))
    return tuple(way_named(str(word), where) for word in words)


def _yes_or_no(value: Any, what: str, where: str) -> bool:
    found = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(str(value).lower())
    if found is None:
        raise InputError(f"{what} is {value!r}", where=where, fix="write true or false")
    return found


def _one_of(value: str, known: Mapping[str, Any], what: str, where: str) -> str:
    if value not in known:
        raise InputError(f"{what} {value!r} is not known", where=where, fix=nearest(value, known))
    return value


def _number(value: Any, what: str, low: float, high: float, where: str) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not low <= number <= high:
        raise InputError(f"{what} is {value!r}", where=where, fix=f"give a number from {low:g} to {high:g}")
    return number


def _share(said: Mapping[str, Any], what: str, where: str) -> float | None:
    return None if said.get(what) is None else _number(said[what], what, 0.0, 1.0, where)


def _whole(value: Any, what: str, most: int, where: str) -> int:
    number = _number(value, what, 1, most, where)
    if number != int(number):
        raise InputError(f"{what} is {value!r}", where=where, fix="give a whole number")
    return int(number)
