"""What drivers call devices."""

from __future__ import annotations

import pytest

from meshcast.hardware import device_of_driver


@pytest.mark.parametrize(
    ("driver", "device"),
    [
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("Tesla V100-SXM3-32GB", "v100-sxm3-32gb"),
        ("NVIDIA A800-SXM4-80GB", "a800"),
        ("NVIDIA GH200 480GB", "gh200"),
    ],
)
def test_a_driver_names_a_device(driver: str, device: str) -> None:
    found = device_of_driver(driver)
    assert found is not None
    assert found.name == device


@pytest.mark.parametrize(
    "driver",
    [
        "NVIDIA GeForce RTX 2080 Ti", "NVIDIA A100-SXM4-20GB", "V100", "", "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    ],
)  # fmt: skip
def test_others_are_not_guessed(driver: str) -> None:
    assert device_of_driver(driver) is None
