"""Files of tables, ours and torchrec's; batches of `dlrm_datasets`, written here as torch writes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshcast.base import MeshcastError
from meshcast.jobs import list_names, read_batch, read_tables
from tests.torch_files import NamedOnly, torch_file


def test_shipped_lists_are_those_of_their_sources() -> None:
    assert list_names() == ("criteo-1tb", "kuairand-hstu", "mlperf-dcnv2", "mlperf-dlrm", "param-dlrm")
    criteo, mlperf = read_tables("criteo-1tb"), read_tables("mlperf-dcnv2")
    assert sum(each.weight_bytes for each in criteo) == pytest.approx(91.10e9, rel=1e-3)  # as the page has it, in GB
    assert (len(mlperf), sum(each.rows for each in mlperf)) == (26, 204_184_588)
    assert sum(each.pooling for each in mlperf) == 214
    assert not any(each.pooled for each in read_tables("kuairand-hstu"))


def test_a_csv_has_a_line_a_table(tmp_path: Path) -> None:
    path = tmp_path / "tables.csv"
    heading = "name,rows,dim,pooling,spread,dtype,optimizer,indices,ways"
    path.write_text(f"# mine\n{heading}\nuser,1000,64,20,5,fp16,adam,zipf:1.05,row|table\nad,10,32,,,,,,\n")
    user, ad = read_tables(str(path))
    assert (user.bytes, user.row_state_bytes, user.ways, user.dtype) == (
        1000 * (128 + 512),
        512,
        ("row", "table"),
        "f16",
    )
    assert (ad.pooling, ad.optimizer, str(ad.indices)) == (1.0, "rowwise-adagrad", "uniform")


def test_what_torchrecs_planner_is_told_is_understood(tmp_path: Path) -> None:
    told = {
        "tables": [{"name": "t0", "num_embeddings": 1000, "embedding_dim": 128, "data_type": "FP16", "feature_names": ["f0"]}],
        "constraints": {
            "t0": {"pooling_factors": [10.0, 30.0], "sharding_types": ["row_wise", "data_parallel"], "cache_load_factor": 0.2}
        },
    }  # fmt: skip
    path = tmp_path / "tables.json"
    path.write_text(json.dumps(told))
    (table,) = read_tables(str(path))
    assert (table.rows, table.dim, table.dtype, table.pooling, table.ways) == (1000, 128, "f16", 40.0, ("row", "data"))
    assert table.cached == 0.2


def test_constraints_are_of_tables_that_have_a_name(tmp_path: Path) -> None:
    """What is written about a table called None is of no table without a name."""
    sizes = {"rows": 10, "dim": 4}
    told = {
        "tables": [sizes, {"name": None, **sizes}, {"name": "None", **sizes}],
        "constraints": {"None": {"pooling": 7}},
    }
    path = tmp_path / "tables.json"
    path.write_text(json.dumps(told))
    found = [(table.name, table.pooling) for table in read_tables(str(path))]
    assert found == [("table_0", 1.0), ("table_1", 1.0), ("None", 7.0)]


def test_a_spreadsheets_file_is_read(tmp_path: Path) -> None:
    """Spreadsheets put a mark of the encoding before the heading, and some write the ending in capitals."""
    path = tmp_path / "TABLES.CSV"
    path.write_text("rows,dim\r\n10,4\r\n", encoding="utf-8-sig")
    (table,) = read_tables(str(path))
    assert (table.rows, table.dim) == (10, 4)


def test_an_empty_sample_is_told_once(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    (tmp_path / "none.txt").write_text("")
    path = tmp_path / "tables.csv"
    path.write_text("rows,dim,indices\n10,4,sample:none.txt\n")
    with pytest.raises(MeshcastError, match="has no indices"):
        read_tables(str(path))
    assert not recwarn.list


def test_toml_has_tables(tmp_path: Path) -> None:
    path = tmp_path / "tables.toml"
    path.write_text("[[tables]]\nrows = 1000\ndim = 16\n[[tables]]\nrows = 5\ndim = 8\nzipf = 1.2\n")
    assert [(each.name, each.rows, str(each.indices)) for each in read_tables(str(path))] == [
        ("table_0", 1000, "uniform"),
        ("table_1", 5, "zipf:1.2"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "rows,dim\n10\n", "a.csv:2"),
        ("a.csv", "rows,dim\n0,4\n", "rows is '0'"),
        ("a.csv", "rows,dim\n1.5,4\n", "whole number"),
        ("a.csv", "rows,dims\n1,4\n", "unknown field 'dims'"),
        ("a.csv", "rows,dim,dtype\n1,4,f12\n", "dtype 'f12'"),
        ("a.csv", "name,rows,dim\na,1,4\na,1,4\n", "a second table 'a'"),
        ("a.csv", "rows,dim,ways\n1,4,rows\n", "no sharding 'rows'"),
        ("a.csv", "rows,dim,indices\n1,4,sample:gone.txt\n", "no file"),
        ("a.csv", "", "0 tables"),
        ("a.csv", "rows,rows,dim\n1,2,4\n", "a.csv:1: two columns 'rows'"),
        ("a.csv", "rows,num_embeddings,dim\n1,2,4\n", "'rows' and 'num_embeddings' say the same thing"),
        ("a.csv", "rows,dim,indices\n1,4,histogram:nan=1\n", "add up to nan"),
        ("a.txt", "rows,dim\n1,4\n", "name it .csv"),
        ("a.json", "[1]", "no list of tables"),
        ("a.json", '[{"rows": true, "dim": 4}]', "rows is True"),
        ("a.json", '{"tables": [{"name": "a", "rows": 1, "dim": 4}], "constraints": {"a": 5}}', "constraints of 'a'"),
        ("a.json", '{"tables": [{"name": "", "rows": 1, "dim": 4}], "constraints": {"": 5}}', "constraints of ''"),
        ("a.json", "{", "a.json"),
        ("a.toml", "rows = [", "a.toml"),
    ],
)
def test_mistakes_in_a_file_are_told_with_their_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(MeshcastError) as error:
        read_tables(str(path))
    assert said in str(error.value)
    assert error.value.exit_code == 2


def _saved(path: Path, value: Any) -> None:
    path.write_bytes(gzip.compress(torch_file(value)))


def test_a_batch_of_dlrm_datasets_is_read_without_torch(tmp_path: Path) -> None:
    indices = np.array([1, 1, 2, 7, 7, 7, 7], dtype=np.int64)
    lengths = np.array([[2, 1], [4, 0]], dtype=np.int64)
    path = tmp_path / "batch.pt.gz"
    _saved(path, (indices, np.array([0, 2, 3, 7, 7], dtype=np.int64), lengths))
    batch = read_batch(path)
    assert (batch.tables, batch.batch, batch.of_table(1).tolist()) == (2, 2, [7, 7, 7, 7])
    assert batch.pooling(0) == (1.5, 0.5)
    table = tmp_path / "tables.csv"
    table.write_text("rows,dim,indices\n100,8,sample:batch.pt.gz#0\n")
    (read,) = read_tables(str(table))
    # One row came twice and one once: of the look-ups, those that came once tell what unseen rows have.
    assert read.picked.shares.tolist() == pytest.approx([1 / 3 * 2 / 3, 2 / 3 * 2 / 3, 1 / 3])
    assert read.picked.rows.tolist() == [1, 1, 98]


def test_a_pickle_that_calls_something_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batch.pt.gz"
    _saved(path, NamedOnly("os", "system"))
    with pytest.raises(MeshcastError, match=r"it names os\.system"):
        read_batch(path)


def test_torchrecs_own_objects_are_understood_as_python_writes_them(tmp_path: Path) -> None:
    """`dataclasses.asdict` of an `EmbeddingBagConfig` and of `ParameterConstraints`, members of enumerations by their names."""
    config = {
        "num_embeddings": 1000, "embedding_dim": 64, "name": "t0", "data_type": "DataType.FP16", "feature_names": ["f0"],
        "weight_init_max": None, "num_embeddings_post_pruning": None, "init_fn": None, "need_pos": False,
        "pooling": "PoolingType.SUM", "use_virtual_table": False,
    }  # fmt: skip
    rows = {
        "name": "t1",
        "num_embeddings": 10,
        "embedding_dim": 64,
        "pooling": "NONE",
        "optimizer": "EXACT_ROWWISE_ADAGRAD",
    }
    constraints = {
        "t0": {
            "sharding_types": ["table_column_wise"], "compute_kernels": None, "min_partition": 32, "pooling_factors": [2.5],
            "cache_params": {"algorithm": "LRU", "load_factor": 0.25}, "enforce_hbm": None,
        }
    }  # fmt: skip
    path = tmp_path / "planner.json"
    path.write_text(json.dumps({"tables": [config, rows], "constraints": constraints}))
    first, second = read_tables(str(path))
    assert (first.dtype, first.pooling, first.pooled, first.cached, first.ways) == ("f16", 2.5, True, 0.25, ("column",))
    assert (second.pooled, second.pooling, second.optimizer) == (False, 1.0, "rowwise-adagrad")


def test_an_archives_only_array_needs_no_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", np.array([1, 1, 2]))
    np.savez(tmp_path / "two.npz", a=np.array([1, 1, 2]), b=np.array([3]))
    path = tmp_path / "tables.csv"
    path.write_text("rows,dim,indices\n10,4,sample:one.npz\n10,4,sample:two.npz#a\n")
    one, named = read_tables(str(path))
    assert one.indices == named.indices
    path.write_text("rows,dim,indices\n10,4,sample:two.npz\n")
    with pytest.raises(MeshcastError, match="which array is not said, of a, b"):
        read_tables(str(path))


@pytest.mark.parametrize(
    ("indices", "said"),
    [
        ([3, 10], "looks row 10 up, and the table has 10"),
        ([3, -1], "has an index of -1"),
        ([0.5, 1.0], "its numbers are float64, and indices are whole"),
        ([], "has no indices"),
    ],
)
def test_a_sample_that_does_not_belong_to_its_table_is_refused(tmp_path: Path, indices: list[float], said: str) -> None:
    np.save(tmp_path / "sample.npy", np.array(indices) if indices else np.array([], dtype=np.int64))
    path = tmp_path / "tables.csv"
    path.write_text("rows,dim,indices\n10,4,sample:sample.npy\n")
    with pytest.raises(MeshcastError, match=said):
        read_tables(str(path))


def test_hits_are_those_of_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "tables.csv"
    path.write_text("rows,dim,cached,hits\n1000,4,0.1,0.75\n")
    (table,) = read_tables(str(path))
    assert (table.cached, table.hits) == (0.1, 0.75)
    path.write_text("rows,dim,hits\n1000,4,0.75\n")
    with pytest.raises(MeshcastError, match="hits of no cache"):
        read_tables(str(path))
