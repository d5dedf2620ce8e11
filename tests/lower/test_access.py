"""Whole sectors that loops fetch, pieces that they join and tiles that XLA tells, counted by hand."""

from __future__ import annotations

import pytest

from meshcast.lower import Kernel, lower_hlo
from meshcast.lower.access import ReadRuns

HEAD = "HloModule m, is_scheduled=true\n\n"


def fused(parameter: str, result: str, body: str, kind: str = "kLoop", config: str = "") -> Kernel:
    """The kernel of a fusion of one operand."""
    text = f"""{HEAD}%fused (p: {parameter}) -> {result} {{
  %p = {parameter} parameter(0)
{body}
}}

ENTRY %main (a: {parameter}) -> {result} {{
  %a = {parameter} parameter(0)
  ROOT %f = {result} fusion(%a), kind={kind}, calls=%fused{config}
}}
"""
    ((kernel, _),) = lower_hlo(text).schedule.walk()
    return kernel


@pytest.mark.parametrize(
    ("length", "pitch", "width", "share"),
    [
        (1, 64, 4, 8.0),  # a sector for each number
        (1, 2, 4, 2.0),  # every second number: sectors are shared
        (8, 64, 4, 1.0),  # a whole sector
        (3, 7, 4, 28 / 12),  # 12 + 32 - 4 bytes would be 40: more than the 28 to the next run
        (12, 64, 4, 64 / 48),  # 48 + 32 - 16
    ],
)
def test_a_run_takes_its_sectors_or_the_way_to_the_next(length: int, pitch: int, width: int, share: float) -> None:
    assert ReadRuns(length, pitch).sectors(width) == pytest.approx(share)


def test_the_last_column_of_rows_is_fetched_by_sectors() -> None:
    kernel = fused("f32[4096,64]", "f32[4096,1]", "  ROOT %s = f32[4096,1] slice(%p), slice={[0:4096], [63:64]}")
    assert kernel.read_bytes == 4096 * 4
    assert kernel.fetched_bytes == kernel.touched_bytes == 4096 * 32


def test_whole_rows_are_fetched_as_they_are() -> None:
    kernel = fused("f32[4096,64]", "f32[64,64]", "  ROOT %s = f32[64,64] slice(%p), slice={[0:64], [0:64]}")
    assert not kernel.fetched_bytes
    assert kernel.read_bytes == 64 * 64 * 4


def test_steps_share_the_sectors_between_them() -> None:
    kernel = fused("f32[4096]", "f32[2048]", "  ROOT %s = f32[2048] slice(%p), slice={[0:4096:2]}")
    assert kernel.fetched_bytes == kernel.touched_bytes == 4096 * 4


def test_a_transpose_in_a_loop_reads_number_by_number() -> None:
    kernel = fused("f32[1024,1024]", "f32[1024,1024]", "  ROOT %t = f32[1024,1024] transpose(%p), dimensions={1,0}")
    assert kernel.fetched_bytes == 8 * kernel.read_bytes
    narrow = fused("f32[3,65536]", "f32[65536,3]", "  ROOT %t = f32[65536,3] transpose(%p), dimensions={1,0}")
    assert narrow.fetched_bytes < 1.2 * narrow.read_bytes  # a block's results have 170 neighbours in each row


def test_a_join_says_what_it_joins() -> None:
    body = """  %s = f32[64,3] slice(%p), slice={[0:64], [0:3]}
  ROOT %c = f32[64,67] concatenate(%s, %p), dimensions={1}"""
    assert fused("f32[64,64]", "f32[64,67]", body, kind="kInput").pieces == (3, 64)


def test_the_tile_that_xla_chose_is_told_in_powers_of_two() -> None:
    config = (
        ', backend_config={"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":'
        '{"num_warps":"4","output_tiles":[{"sizes":["3","100"]}]}}}'
    )
    body = "  ROOT %n = f32[64,100] negate(%p)"
    kernel = fused("f32[64,100]", "f32[64,100]", body, kind="kCustom", config=config)
    assert (kernel.tile, kernel.warps) == (4 * 128, 4)
