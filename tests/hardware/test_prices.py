"""List prices: of devices that there are, dated and with a source; and what a device that is made from another costs."""

from __future__ import annotations

import pytest

from meshcast.base import UsageError
from meshcast.hardware import check_priced, device_names, list_price, load_device, priced_devices, resolve, world_grid


@pytest.mark.parametrize("name", priced_devices())
def test_every_list_price_is_of_a_device_and_says_of_when_and_whose_it_is(name: str) -> None:
    assert name in device_names()
    price = list_price(load_device(name))
    assert price is not None
    assert 0 < price.usd_per_hour < 100
    assert price.date[:2] == "20"
    assert price.offer
    assert price.source.url is not None
    assert price.source.url.startswith("https://")


def test_a_device_with_changed_numbers_is_rented_as_what_it_starts_from() -> None:
    changed, plain = resolve("dgx-h100+memory.bandwidth=6.7TB/s").device, load_device("h100-sxm")
    assert changed.name != plain.name
    assert list_price(changed) == list_price(plain)


def test_a_device_nobody_lists_has_no_price() -> None:
    assert list_price(load_device("cpu-generic")) is None


def test_the_grid_is_stated_with_its_source() -> None:
    grid = world_grid()
    assert 0.01 < grid.kg_per_kwh < 1.5
    assert grid.source.url


def test_prices_are_of_devices_that_are_asked_about() -> None:
    changed = resolve("dgx-h100+memory.bandwidth=6.7TB/s").device
    for text in (None, 2.5, "list", "list,h100-sxm=3"):
        check_priced(text, [changed])
    with pytest.raises(UsageError, match="a price of h10-sxm, which is not asked about") as told:
        check_priced("list,h100-sxm=3,h10-sxm=3", [changed])
    assert told.value.fix == "did you mean 'h100-sxm'?"
