"""Sums of gradients that are kept from one point of a sweep to the next: whatever shapes their times is in their key."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from meshcast.hardware import resolve
from meshcast.jobs.pipeline.parts import sums_key
from meshcast.jobs.program import known_steps
from meshcast.options.declared import option
from meshcast.options.network_options import NetworkOptions
from meshcast.options.options import Options, option_places
from tests.options.other_values import other_value

CLUSTER = resolve("dgx-h100")


def key_with(network: NetworkOptions) -> object:
    run: Any = SimpleNamespace(options=Options(network=network), cluster=CLUSTER, devices=8)
    return sums_key(run)


@pytest.mark.parametrize("name", [name for name, place in option_places().items() if place.part == "network"])
def test_every_option_of_the_network_changes_the_key(name: str) -> None:
    plain = key_with(NetworkOptions())
    assert plain is not None
    assert plain == key_with(NetworkOptions())
    changed = key_with(Options(**{name: other_value(name)}).network)
    assert changed is None or changed != plain  # without a key nothing is kept


def test_an_option_that_nobody_has_thought_of_yet_changes_the_key() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class WithRetries(NetworkOptions):
        """A network with one option more."""

        retries: int = option(0, flag="--retries", help="How often a lost packet is sent again.")

    assert key_with(WithRetries()) == key_with(WithRetries())
    assert key_with(WithRetries()) != key_with(WithRetries(retries=3))


def test_numbers_of_forgotten_options_are_never_given_again() -> None:
    numbers = [known_steps.number_of_options((count,)) for count in range(2 * known_steps.MOST_OPTIONS)]
    assert known_steps.number_of_options((numbers[-1] - numbers[0],)) == numbers[-1]
    assert known_steps.number_of_options((0,)) > numbers[-1]
    assert len(set(numbers)) == len(numbers)
