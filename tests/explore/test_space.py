"""Spaces: counted and walked in order, from Python and from files, and every mistake of a file with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshcast.base import InputError, UsageError
from meshcast.explore.asking import known_of
from meshcast.explore.exploration import Accounts
from meshcast.explore.measures import Constraints
from meshcast.explore.space import HARDWARE, Space, SpaceAxis
from meshcast.explore.space_file import read_space
from meshcast.hardware import Price, named_with_changes, resolve

LEVEL_FIELDS = {"latency": "latency_s", "size": "size"}

FILE = """\
schema = "meshcast.space/1"
model = "gpt2-tiny"
on = ["dgx-h100", "dgx-a100"]
devices = 4

[set]
batch = 8
seq = [64, 128]

[options]
fidelity = "analytical"

[hardware]
"memory.bandwidth" = ["1x", "2x"]
nvlink.link_bandwidth = "+10%"

[plan]
remat = ["full"]
tp = [1, 2]

[want]
objectives = ["time", "cost"]
price = 2
tokens = "1B"
per = ["on"]

[limits]
step_time = "2 s"
power = "1 MW"
"""


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "space.toml"
    path.write_text(text)
    return path


def test_a_file_becomes_axes_options_choices_and_limits(tmp_path: Path) -> None:
    read = read_space(_file(tmp_path, FILE))
    names = [axis.name for axis in read.space.axes]
    assert names == ["on", "set.seq", "hardware.memory.bandwidth", "hardware.nvlink.link_bandwidth"]
    assert read.space.combinations == 2 * 2 * 2
    assert read.space.plans == {"remat": ("full",), "tp": (1, 2)}
    assert read.asked["constraints"] == Constraints(step_time_s=2.0, watts=1e6)
    assert read.asked["tokens"] == 1e9
    first = next(read.space.points())
    assert first.asked["on"] == "dgx-h100+memory.bandwidth=3.35TB/s+nvlink.link_bandwidth=27.5GB/s"
    assert first.settings == {"batch": "8", "seq": "64"}
    assert resolve(first.asked["on"]).levels[0].link_bandwidth == 27.5e9
    assert [point.number for point in read.space.points()] == list(range(len(read.space)))


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("seq = [64, 128]", "sequ = [64, 128]", 8, "no setting 'sequ' in mode train, did you mean 'seq'?"),
        ("seq = [64, 128]", "seq = [64, -3]", 8, "the setting seq is a positive integer, not -3"),
        ("batch = 8", 'mode = "decode"\nremat = "full"\nbatch = 8', 8, "no setting 'remat' in mode decode"),
        ('model = "gpt2-tiny"', 'modle = "gpt2-tiny"', 2, "unknown key 'modle'"),
        ("devices = 4", 'devices = "four"', 4, "devices is 'four'"),
        ("devices = 4", "devices = -4", 4, "-4 devices"),
        ('fidelity = "analytical"', 'fidelity = "bogus"', 11, "no fidelity 'bogus'"),
        ('fidelity = "analytical"', 'fidelty = "analytical"', 11, "no option 'fidelty'"),
        ("tp = [1, 2]", "tensor = [1, 2]", 19, "tensor"),
        ('remat = ["full"]', 'remat = ["most"]', 18, "remat=most"),
        ('objectives = ["time", "cost"]', 'objectives = ["speed"]', 22, "no objective 'speed'"),
        ('objectives = ["time", "cost"]', 'objectives = [["time"]]', 22, "no objective ['time']"),
        ('objectives = ["time", "cost"]', "objectives = {}", 22, "no objective {}"),
        ('remat = ["full"]', "remat = []", 18, "plan.remat has no values"),
        ('tokens = "1B"', 'tokens = "many"', 24, "no number of tokens"),
        ('step_time = "2 s"', 'step_time = "2 W"', 28, "2 W"),
        ('power = "1 MW"', 'heat = "1 MW"', 29, "unknown key 'heat'"),
        ("seq = [64, 128]", "seq = []", 8, "no values"),
        ('["1x", "2x"]', "[1, 2]", 14, "memory.bandwidth"),
        ('["1x", "2x"]', '{ from = "4x", to = "1x", steps = 3 }', 14, "no range"),
        ('["1x", "2x"]', '{ from = "1x", to = "infx", steps = 3 }', 14, "no range"),
        ('["1x", "2x"]', '{ from = "1x", to = "4x", steps = 1000000000000 }', 14, "1,000,000,000,000 values"),
        ('["1x", "2x"]', "{}", 14, "{} is no range"),
        ('["1x", "2x"]', '["1x", "fast"]', 14, "got 'fast'"),
        ('model = "gpt2-tiny"', 'model = ""', 2, "no model or file ''"),
        ('fidelity = "analytical"', "fidelity = 3", 11, "not 3"),
        ('fidelity = "analytical"', 'fidelity = ["analytical", true]', 11, "not True"),
        ('fidelity = "analytical"', 'network = "carrier-pigeons"', 11, "carrier-pigeons"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    path = _file(tmp_path, FILE.replace(old, new))
    with pytest.raises(InputError) as told:
        read_space(path)
    assert said in told.value.message
    assert told.value.where == f"{path}:{line}"


def test_what_a_space_must_say(tmp_path: Path) -> None:
    for text, said in (
        ("model = 'gpt2-tiny'\n", "schema"),
        ('schema = "meshcast.space/1"\nmodel = "gpt2-tiny"\n', "runs on"),
        ('schema = "meshcast.space/1"\non = "h100-sxm"\n', "one model"),
        (FILE.replace("[plan]", 'plans = ["dp=4"]\n[plan]').replace("[hardware]", "[hardwares]"), "unknown key"),
    ):
        with pytest.raises(InputError, match=said):
            read_space(_file(tmp_path, text))


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ('[limits]\ndevices = "many"', "limits.devices is 'many', and no whole number"),
        ('[limits]\nmemory_share = "0.9"', "no number above zero"),
        ("[limits]\nstep_time = -1", "non-negative"),
        ("[limits]\nmemory_share = 7", "limits.memory_share is 7"),
        ("devices = [8, 8]", "devices has 8 twice"),
        ("[set]\nbatch = [4, 8, 4]", "set.batch has 4 twice"),
        ('[hardware]\n"memory.bandwidth" = ["1x", "2x", "2x"]', "memory.bandwidth has 2x twice"),
        ('[want]\nprice = "list,h10-sxm=3"', "a price of h10-sxm"),
        ("[want]\ntop = -1", "want.top is -1"),
        ("[want]\ntrials = 0.5", "no whole number"),
        ('[want]\nkg_per_kwh = "x"', "want.kg_per_kwh"),
        ("[want]\nobjectives = []", "nothing is wanted"),
        ('[want]\nper = ["nope"]', "'nope' is no axis"),
        ('[then]\nfidelty = "roofline"', "no option 'fidelty'"),
        ('[then]\nfidelity = "bogus"', "no fidelity 'bogus'"),
        ('[then]\nfidelity = ["roofline", "analytical"]', "one value"),
        ('[want]\nprice = "cheap"', "'cheap' is no price"),
        ("[want]\nprice = -1", "is no price"),
        ("[want]\nprice = [2.5]", "is no price"),
        ('[hardware]\n"memory.bandwith" = ["1x"]', "no number 'memory.bandwith'"),
        ('[hardware]\n"memory.bandwidth" = ["1x", "-1x"]', "got '-1x'"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_before_anything_is_predicted(
    tmp_path: Path, added: str, said: str
) -> None:
    text = f'schema = "meshcast.space/1"\nmodel = "gpt2-tiny"\non = "h100-sxm"\nplans = ["mbs=1"]\n{added}\n'
    with pytest.raises(InputError, match=re.escape(said)) as told:
        read_space(_file(tmp_path, text))
    assert told.value.where is not None
    assert told.value.where.endswith((":5", ":6"))


def test_a_model_or_machine_that_there_is_not(tmp_path: Path) -> None:
    text = 'schema = "meshcast.space/1"\nmodel = ["gpt2-tiny", "gpt2-tinü"]\non = "h100-sxm"\n'
    with pytest.raises(InputError, match="no model or file 'gpt2-tinü'") as told:
        read_space(_file(tmp_path, text))
    assert "gpt2-tiny" in str(told.value.fix)
    with pytest.raises(InputError, match="h1000") as told:
        read_space(_file(tmp_path, text.replace(', "gpt2-tinü"', "").replace("h100-sxm", "h1000")))
    assert str(told.value.where).endswith(":3")


def test_a_million_points_are_counted_without_being_walked() -> None:
    axes = tuple(SpaceAxis(name=f"set.{name}", values=tuple(range(100))) for name in "abc")
    space = Space(model="gpt2-tiny", asked={"on": "h100-sxm"}, axes=axes)
    assert len(space) == 10**6
    assert next(space.points()).settings == {"a": "0", "b": "0", "c": "0"}


def test_an_axis_is_there_once_and_has_values() -> None:
    with pytest.raises(UsageError, match="twice"):
        Space(model="m", axes=(SpaceAxis(name="on", values=("a",)), SpaceAxis(name="on", values=("b",))))
    with pytest.raises(UsageError, match="no values"):
        SpaceAxis(name="on", values=())


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("memory.bandwidth", "2x", 2 * 3.35e12),
        ("memory.bandwidth", "4.8 TB/s", 4.8e12),
        ("infiniband.latency", "-10%", 0.9 * 2.7e-6),
        ("compute.clock", "+10%", 1.1 * 1.98e9),
        ("nvlink.size", "2x", 16),
    ],
)
def test_numbers_that_are_said_by_what_they_are_now(key: str, text: str, value: float) -> None:
    cluster = resolve("dgx-h100")
    changed = resolve(named_with_changes("dgx-h100", cluster, f"{key}={text}"))
    levels = {
        f"{each.name}.{name}": getattr(each, field) for each in changed.levels for name, field in LEVEL_FIELDS.items()
    }
    found = levels[key] if key in levels else changed.device.facts[key].value
    assert found == pytest.approx(value)


def test_a_number_that_hardware_does_not_have() -> None:
    with pytest.raises(UsageError, match=r"no number 'memory\.speed'"):
        named_with_changes("dgx-h100", resolve("dgx-h100"), "memory.speed=2x")


def test_a_node_of_another_size_lies_in_larger_domains() -> None:
    assert resolve("dgx-h100+nvlink.size=64").levels[0].size == 64
    with pytest.raises(UsageError, match="around it"):
        resolve("dgx-h100+nvlink.size=2000000")
    with pytest.raises(UsageError, match="one switch"):
        resolve("tpu-v5p-pod+ici.size=64")


def test_devices_may_have_prices_of_their_own() -> None:
    tpu, gpu = resolve("tpu-v5p").device, resolve("h200").device
    assert [Price.of("3,tpu-v5p=2.5", each) for each in (tpu, gpu)] == [
        Price(usd_per_hour=2.5, said="as given"), Price(usd_per_hour=3.0, said="as given"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no list price of tpu-v5p") as found:
        Price.of("list", tpu)
    assert "list,tpu-v5p=2.5" in str(found.value.fix)
    with pytest.raises(UsageError, match="no price of a device"):
        Price.of("list,tpu-v5p", tpu)


def test_a_sweep_over_numbers_of_a_device_has_one_price() -> None:
    """And it is the one that was given for what it starts from: a changed device is rented as that."""
    rates = SpaceAxis(name=f"{HARDWARE}memory.bandwidth", values=("3TB/s", "4TB/s", "5TB/s"))
    space = Space(
        model="gpt2-tiny", asked={"on": "dgx-h100", "plan": "dp=2", "settings": {"batch": "4"}}, axes=(rates,)
    )
    accounts = Accounts(tokens=1e9)
    found = [known_of(combination, "9,h100-sxm=2", accounts).price for combination in space.walk()]
    assert found == [2.0, 2.0, 2.0]
    assert set(accounts.prices) == {"h100-sxm"}
    changed = resolve("dgx-h100+memory.bandwidth=4TB/s").device.name
    assert accounts.price(changed) == Price(usd_per_hour=2.0, said="as given")
