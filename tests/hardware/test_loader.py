from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from meshcast import hardware
from meshcast.base.errors import InputError, UnsupportedError, UsageError
from meshcast.hardware import document

WHAT_IF = """\
schema = "meshcast.device/1"
name = "h100-fast"
base = "h100-sxm"

[memory]
bandwidth = "6.7 TB/s"
"""


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def line_of(text: str, fragment: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if fragment in line)


def test_aliases() -> None:
    assert hardware.load_device("h100") is hardware.load_device("h100-sxm")
    assert hardware.resolve("trillium").device.name == "tpu-v6e"


def test_device_resolves_to_its_cluster_and_cluster_to_itself() -> None:
    assert hardware.resolve("h200").name == "dgx-h200"
    assert hardware.resolve("dgx-h200").device.name == "h200"


def test_device_without_cluster_stands_alone(tmp_path: Path) -> None:
    alone = hardware.resolve(write(tmp_path, WHAT_IF.replace("[", 'default_cluster = ""\n\n[', 1)))
    assert (alone.levels, alone.max_devices) == ((), 1)
    assert alone.for_devices(1).levels == ()


@pytest.mark.parametrize("load", [hardware.load_device, hardware.resolve])
def test_unknown_name_suggests_the_nearest(load: object) -> None:
    with pytest.raises(UnsupportedError, match="h10-sxm") as caught:
        load("h10-sxm")  # type: ignore[operator]
    assert caught.value.fix == "did you mean 'h100-sxm'?"
    assert caught.value.exit_code == 4


def test_what_if_overrides_one_number_and_keeps_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path, WHAT_IF)
    fast, base = hardware.load_device(path), hardware.load_device("h100-sxm")
    assert fast.memory_bandwidth == 6.7e12
    assert fast.facts["memory.bandwidth"].source == "user"
    assert fast.memory_bytes == base.memory_bytes
    assert fast.matrix_flops == base.matrix_flops
    assert (fast.name, fast.title, fast.aliases) == ("h100-fast", "h100-fast", ())
    cluster = hardware.resolve(str(path))
    assert (cluster.name, cluster.device) == ("dgx-h100", fast)


def test_cluster_file_may_name_a_device_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, WHAT_IF, "fast.toml")
    text = 'schema = "meshcast.cluster/1"\nname = "lab"\nbase = "dgx-h100"\ndevice = "./fast.toml"\n'
    cluster = hardware.resolve(write(tmp_path, text, "lab.toml"))
    assert cluster.device.name == "h100-fast"
    assert [level.name for level in cluster.levels] == ["nvlink", "infiniband"]


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("[memory]\n", 'memroy_bandwidth = "1 TB/s"\n[memory]\n'), 5, "did you mean 'memory.bandwidth'?"),
        (("bandwidth", "bandwith"), 6, "unknown key 'memory.bandwith', did you mean 'memory.bandwidth'?"),
        (("6.7 TB/s", "6.7 TB"), 6, "memory.bandwidth: expected bandwidth, got '6.7 TB': 'TB' measures bytes"),
        (('"6.7 TB/s"', "6700"), 6, "it has no unit; write it like '3.35 TB/s'"),
        (('"6.7 TB/s"', '{ value = "6.7 TB/s", source = "datashet" }'), 6, "source 'datashet' is not under [sources]"),
        (('"6.7 TB/s"', '{ value = "6.7 TB/s", source = "derived" }'), 6, "needs a note that says how"),
        (('"6.7 TB/s"', '{ value = "6.7 TB/s", sauce = "x" }'), 6, "has value, source and note, not sauce"),
        (("[memory]\n", 'kind = "fpga"\n[memory]\n'), 5, "expected one of gpu, tpu, cpu, npu, got 'fpga'"),
        (("[memory]\n", 'matrix.bf61 = "1 TFLOP/s"\n[memory]\n'), 5, "unknown key 'matrix.bf61', did you mean"),
        (("[memory]\n", 'compute.cores = "1.5 SM"\n[memory]\n'), 5, "expected a whole number"),
        (("6.7 TB/s", "0 TB/s"), 6, "memory.bandwidth: expected more than zero, got '0 TB/s'"),
        (('bandwidth = "6.7 TB/s', 'capacity = "0 GB'), 6, "memory.capacity: expected more than zero"),
        (("[memory]\n", 'matrix.bf16 = "0 TFLOP/s"\n[memory]\n'), 5, "matrix.bf16: expected more than zero"),
        (("[memory]\n", 'compute.cores = "0 SM"\n[memory]\n'), 5, "compute.cores: expected more than zero"),
        (("[memory]\n", 'cache.capacity = "0 MB"\n[memory]\n'), 5, "cache.capacity: expected more than zero"),
        (('name = "h100-fast"', "name = 100"), 2, "name: expected text in quotes, got 100"),
        (("device/1", "device/9"), 1, "base 'h100-sxm' is a file of another kind"),
        (('schema = "meshcast.device/1"', "# none"), 3, "its base 'h100-sxm' has schema 'meshcast.device/1'"),
        (("[memory]", "[memory"), 5, "not valid TOML"),
    ],
)
def test_mistakes_are_told_with_file_and_line(tmp_path: Path, change: tuple[str, str], line: int, message: str) -> None:
    path = write(tmp_path, WHAT_IF.replace(*change))
    with pytest.raises(InputError) as caught:
        hardware.load_device(path)
    expected = 3 if "another kind" in message else line
    assert str(caught.value).startswith(f"{path}:{expected}: ")
    assert message in str(caught.value)


def test_missing_keys_are_all_named(tmp_path: Path) -> None:
    path = write(tmp_path, 'schema = "meshcast.device/1"\nname = "x"\n[memory]\ncapacity = "1 GB"\n')
    with pytest.raises(InputError) as caught:
        hardware.load_device(path)
    message = str(caught.value)
    assert f"also {path}:3: missing key 'memory.bandwidth'" in message
    for key in ("vendor", "compute.clock", "power.tdp", "cache.capacity"):
        assert f"missing key {key!r}" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("8 devices", "2000000 devices"), "sizes [2000000, 1048576] must grow"),
        (('topology = "switch"\nsize = { value = "8', 'topology = "torus"\nsize = { value = "8'), "a torus needs it"),
        (("in_network_reduction = true", "in_network_reduction = 1"), "expected true or false, got 1"),
        (('link_bandwidth = { value = "25 GB/s', 'link_bandwidth = { value = "0 GB/s'), "expected more than zero"),
        (('links = { value = "18 links', 'links = { value = "0 links'), "levels.0.links: expected more than zero"),
        (("latency =", "latancy ="), "unknown key 'levels.0.latancy', did you mean 'levels.latency'?"),
    ],
)
def test_cluster_mistakes(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    source = Path(hardware.__file__).parent / "catalogue" / "clusters" / "dgx-h100.toml"
    text = source.read_text().replace(*change)
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        hardware.load_cluster(path)
    assert message in str(caught.value)
    if "\n" not in change[0] and "grow" not in message:
        place = line_of(text, change[1].splitlines()[0])
        assert f"{path}:{place}: " in str(caught.value)


def test_free_latencies_and_idle_power_are_allowed(tmp_path: Path) -> None:
    text = WHAT_IF + '[compute]\nlaunch_latency = "0 us"\n[power]\nidle = "0 W"\n'
    device = hardware.load_device(write(tmp_path, text))
    assert (device.launch_latency_s, device.idle_watts) == (0, 0)


def test_a_cluster_of_one_device(tmp_path: Path) -> None:
    text = 'schema = "meshcast.cluster/1"\nname = "lone"\nbase = "dgx-h100"\nmax_devices = "1 device"\n'
    assert hardware.load_cluster(write(tmp_path, text)).max_devices == 1


def test_a_device_needs_the_rate_that_others_stand_on(tmp_path: Path) -> None:
    source = Path(hardware.__file__).parent / "catalogue" / "devices" / "h100-sxm.toml"
    lines = source.read_text().splitlines()
    vector = lines.index("[vector]")
    del lines[next(i for i in range(vector, len(lines)) if lines[i].startswith("f32"))]
    with pytest.raises(InputError, match=r"missing key 'vector\.f32'"):
        hardware.load_device(write(tmp_path, "\n".join(lines)))


def test_unknown_base_and_circles(tmp_path: Path) -> None:
    path = write(tmp_path, WHAT_IF.replace("h100-sxm", "h1000"))
    with pytest.raises(UnsupportedError, match="h1000") as unknown:
        hardware.load_device(path)
    assert unknown.value.where == str(path)
    path = write(tmp_path, WHAT_IF.replace("h100-sxm", "./mine.toml"))
    with pytest.raises(InputError, match="based on itself"):
        hardware.load_device(path)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        hardware.resolve(str(tmp_path / "none.toml"))


def test_locator_skips_what_only_looks_like_keys(tmp_path: Path) -> None:
    text = "\n".join(
        [
            'notes = """',
            "name = 1",
            '[memory]"""',
            "aliases = [",
            '  "a = b", # [x]',
            "]",
            "[a.b] # header",
            '"c" = 1',
            "d.e = { f = 2 }",
            "[[levels]]",
            "x = 1",
            "[levels.sub]",
            "y = 1",
            "[[levels]]",
            "x = 2",
        ]
    )
    found = document.read_document(write(tmp_path, text))
    assert ("name",) not in found.lines
    assert ("memory",) not in found.lines
    expected = {
        ("notes",): 1,
        ("aliases",): 4,
        ("a", "b"): 7,
        ("a", "b", "c"): 8,
        ("a", "b", "d", "e"): 9,
        ("levels",): 10,
        ("levels", 0, "x"): 11,
        ("levels", 0, "sub", "y"): 13,
        ("levels", 1, "x"): 15,
    }
    assert {key: found.lines[key] for key in expected} == expected
    assert found.place(("a", "b", "d", "e", "f")).endswith(":9")


@pytest.mark.parametrize(("count", "levels"), [(1, 0), (2, 1), (8, 1), (9, 2), (131072, 2)])
def test_for_devices_keeps_the_levels_in_use(count: int, levels: int) -> None:
    assert len(hardware.load_cluster("dgx-h100").for_devices(count).levels) == levels


@pytest.mark.parametrize("count", [0, -1, 1048577])
def test_for_devices_refuses_what_is_not_there(count: int) -> None:
    with pytest.raises(UsageError):
        hardware.load_cluster("dgx-h100").for_devices(count)


def test_missing_peak_raises_instead_of_guessing() -> None:
    assert hardware.load_device("h200").matrix_peak("bf16") == 989.4e12
    with pytest.raises(UnsupportedError, match="bf16"):
        hardware.load_device("v100").matrix_peak("bf16")


def test_values_hash_and_pickle() -> None:
    cluster = hardware.resolve("tpu-v5p")
    assert hash(cluster) == hash(pickle.loads(pickle.dumps(cluster)))
    assert pickle.loads(pickle.dumps(cluster)) == cluster


def test_loading_one_device_imports_nothing_heavy() -> None:
    code = (
        "import sys; from meshcast.hardware import resolve; resolve('h100');"
        "print([name for name in ('pydantic', 'numpy', 'jax', 'rich') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
