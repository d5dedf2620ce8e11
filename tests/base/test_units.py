from __future__ import annotations

import pytest

from meshcast.base.errors import InputError
from meshcast.base.units import (
    Dimension,
    format_bytes,
    format_energy,
    format_flops,
    format_rate,
    format_time,
    format_whole,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [
        ("3.35 TB/s", Dimension.BANDWIDTH, 3.35e12),
        ("400 Gbit/s", Dimension.BANDWIDTH, 50e9),
        ("2575 GiB/s", Dimension.BANDWIDTH, 2575 * 2**30),
        ("80 GB", Dimension.BYTES, 80e9),
        ("80 GiB", Dimension.BYTES, 80 * 2**30),
        ("1 byte", Dimension.BYTES, 1.0),
        ("989.4 TFLOP/s", Dimension.COMPUTE, 989.4e12),
        ("624 TOP/s", Dimension.COMPUTE, 624e12),
        ("2.25PFLOP/s", Dimension.COMPUTE, 2.25e15),
        ("1.98 GHz", Dimension.FREQUENCY, 1.98e9),
        ("700 W", Dimension.POWER, 700.0),
        ("5 us", Dimension.TIME, 5e-6),
        ("5 \u00b5s", Dimension.TIME, 5e-6),
        ("5 \u03bcs", Dimension.TIME, 5e-6),
        ("  1e-3 s ", Dimension.TIME, 1e-3),
        ("0.8 pJ/FLOP", Dimension.ENERGY_PER_FLOP, 0.8e-12),
        ("50 pJ/byte", Dimension.ENERGY_PER_BYTE, 50e-12),
        ("4 pJ/bit", Dimension.ENERGY_PER_BYTE, 32e-12),
        ("132 SM", Dimension.COUNT, 132.0),
    ],
)
def test_parse_gives_si(text: str, dimension: Dimension, expected: float) -> None:
    assert parse_quantity(text, dimension) == expected


def test_decimal_text_is_exact() -> None:
    assert parse_quantity("66.9 TFLOP/s", Dimension.COMPUTE) == 66.9e12
    assert 66.9 * 1e12 != 66.9e12  # what multiplying floats would have given


@pytest.mark.parametrize(
    ("text", "dimension", "reason"),
    [
        ("3.35 TB", Dimension.BANDWIDTH, "'TB' measures bytes"),
        ("80 GB/s", Dimension.BYTES, "'GB/s' measures bandwidth"),
        ("80", Dimension.BYTES, "no unit"),
        ("fast", Dimension.BANDWIDTH, "not a non-negative number"),
        ("-5 us", Dimension.TIME, "not a non-negative number"),
        ("400 Gb/s", Dimension.BANDWIDTH, "may be bits or bytes; write Gbit/s or GB/s"),
        ("400 Gbps", Dimension.BANDWIDTH, "may be bits or bytes"),
        ("5 mB", Dimension.BYTES, "is not a known unit"),
        ("5 KB", Dimension.BYTES, "is not a known unit"),
    ],
)
def test_refusals_say_what_was_expected(text: str, dimension: Dimension, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_quantity(text, dimension)
    message = str(caught.value)
    assert f"expected {dimension.quantity}, got {text!r}" in message
    assert reason in message
    assert "fix: write it like" in message


@pytest.mark.parametrize("dimension", Dimension)
def test_the_example_of_every_dimension_parses(dimension: Dimension) -> None:
    with pytest.raises(InputError) as caught:
        parse_quantity("", dimension)
    assert caught.value.fix is not None
    example = caught.value.fix.split("'")[1]
    assert parse_quantity(example, dimension) > 0


def test_formatting() -> None:
    assert format_time(0.0512) == "51.2 ms"
    assert format_time(3.4e-6) == "3.4 us"
    assert format_time(5e-10) == "0.5 ns"
    assert format_time(0.0) == "0 s"
    assert format_time(3600.0) == "3600 s"
    assert format_bytes(80 * 2**30) == "80 GiB"
    assert format_bytes(1000 * 2**30) == "1000 GiB"
    assert format_time(0.9997e-3) == "1 ms"
    assert format_time(0.9994e-3) == "999 us"
    assert format_time(0.99999) == "1 s"
    assert format_bytes(2**20 - 1) == "1 MiB"
    assert format_bytes(0) == "0 B"
    assert format_flops(1.0995e12) == "1.1 TFLOP"
    assert format_rate(3.35e12) == "3.35 TB/s"
    assert format_rate(989.4e12, "FLOP/s") == "989 TFLOP/s"


def test_numbers_of_many_digits_are_written_with_exponents() -> None:
    assert format_time(123456.0) == "123456 s"
    assert format_time(1.5e300) == "1.5e+300 s"
    assert format_bytes(2.0**40 * 3e7) == "3e+07 TiB"
    assert format_flops(2e40) == "2e+22 EFLOP"
    assert format_energy(3e20) == "3e+14 MJ"
    assert format_whole(12_288) == "12,288"
    assert format_whole(2**2000) == "1.15e+602"  # beyond what floats hold
