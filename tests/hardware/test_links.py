"""Link technologies: the catalogue's, and files of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast import hardware
from meshcast.base.errors import InputError, UnsupportedError
from meshcast.hardware import TEXTBOOK, LinkTechnology

LINKS = hardware.catalogue().links
MINE = """\
schema = "meshcast.link/1"
name = "mine"
base = "nvlink-4"
share = "90 %"
"""
CLUSTER = """\
schema = "meshcast.cluster/1"
name = "my-cluster"
device = "h100-sxm"
max_devices = "8 devices"

[[levels]]
name = "nvlink"
technology = "NVLink"
LINK
topology = "switch"
size = "8 devices"
links = "18 links"
link_bandwidth = "25 GB/s"
latency = "0.6 us"
"""


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.name)
def test_plausible(link: LinkTechnology) -> None:
    assert 0.01 <= link.share <= 1
    assert 0 <= link.pair_start_s <= link.start_s < 100e-6
    assert {"share", "start", "post"} <= link.facts.keys()
    names = [protocol.name for protocol in link.protocols]
    assert len(set(names)) == len(names)
    assert names == [""] if link.library in ("xla-tpu", "neuron", "hccl") else names[-1] == "Simple"
    steps = [protocol.step_s for protocol in link.protocols]
    assert steps == sorted(steps)
    shares = [protocol.share for protocol in link.protocols]
    assert shares == sorted(shares)


def test_every_accelerator_s_links_have_a_technology() -> None:
    for cluster in hardware.catalogue().clusters:
        if cluster.device.kind != "cpu":
            assert all(level.link is not TEXTBOOK for level in cluster.levels), cluster.name


def test_aliases_and_unknown_names() -> None:
    assert hardware.load_link("infiniband-ndr").name == "infiniband"
    with pytest.raises(UnsupportedError, match="nvlink-9"):
        hardware.load_link("nvlink-9")


def test_a_cluster_s_file_names_a_technology_or_a_file_of_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE, encoding="utf-8")
    path = tmp_path / "cluster.toml"
    for said, name, share in (('link = "nvlink-3"', "nvlink-3", 0.79), ('link = "./mine.toml"', "mine", 0.9)):
        path.write_text(CLUSTER.replace("LINK", said), encoding="utf-8")
        (level,) = hardware.load_cluster(path).levels
        assert (level.link.name, level.link.share) == (name, share)
    path.write_text(CLUSTER.replace("LINK\n", ""), encoding="utf-8")
    assert hardware.load_cluster(path).levels[0].link is TEXTBOOK
    path.write_text(CLUSTER.replace("LINK", 'link = "nvlnk-3"'), encoding="utf-8")
    with pytest.raises(UnsupportedError, match="nvlnk-3"):
        hardware.load_cluster(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINE.replace("90 %", "190 %"), "100 % at most"),
        (MINE.replace("90 %", "0.9"), "no unit"),
        (MINE + 'sharre = "1 %"\n', "unknown key 'sharre'"),
        (MINE.replace('base = "nvlink-4"\n', ""), "missing key 'protocols'"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        hardware.load_link(path)


def test_parts_that_vary_wait_for_the_slowest() -> None:
    """Two slices lie 1.18 deviations behind the one in the middle; one slice waits for nobody, nor do hosts on InfiniBand."""
    pod = hardware.load_cluster("tpu-v5e-pod")
    slice_size, variation = pod.levels[-2].size, pod.levels[-1].link.variation
    assert pod.straggling(slice_size) == 1.0
    assert pod.straggling(2 * slice_size) == pytest.approx(1 + 1.1774 * variation, rel=1e-4)
    assert pod.straggling(32 * slice_size) == pytest.approx(1 + 2.6328 * variation, rel=1e-4)
    assert hardware.load_cluster("dgx-h100").straggling(1024) == 1.0
