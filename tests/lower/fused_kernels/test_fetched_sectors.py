"""Whole sectors that loops fetch, pieces that they join and tiles that XLA tells, counted by hand."""

from __future__ import annotations

import pytest

from meshcast.lower import Kernel, KernelKind, lower_hlo
from meshcast.lower.fused_kernels.fetched_sectors import ReadRuns

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


def test_programs_of_short_sides_are_counted_along_each() -> None:
    config = (
        ', backend_config={"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":'
        '{"num_warps":"1","output_tiles":[{"sizes":["1","2","8","1"]}]}}}'
    )
    body = "  ROOT %t = f32[64,2,9,9] transpose(%p), dimensions={0,1,3,2}"
    kernel = fused("f32[64,2,9,9]", "f32[64,2,9,9]", body, kind="kCustom", config=config)
    assert kernel.tile == 16
    assert kernel.programs == 64 * 1 * 2 * 9  # and not the 648 that as many elements would fill


PICKS = "offset_dims={1,2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4,8}"


def picked(result: str, layout: str, body: str, kind: str = "kLoop") -> Kernel:
    """The kernel of a fusion that picks 4,096 of 2,048 slices of 4 x 8 numbers."""
    text = f"""{HEAD}%fused (p: f32[2048,4,8], i: s32[4096,1]) -> {result} {{
  %p = f32[2048,4,8] parameter(0)
  %i = s32[4096,1] parameter(1)
  %g = f32[4096,4,8]{layout} gather(%p, %i), {PICKS}
{body}
}}

ENTRY %main (a: f32[2048,4,8], b: s32[4096,1]) -> {result} {{
  %a = f32[2048,4,8] parameter(0)
  %b = s32[4096,1] parameter(1)
  ROOT %f = {result} fusion(%a, %b), kind={kind}, calls=%fused
}}
"""
    ((kernel, _),) = lower_hlo(text).schedule.walk()
    return kernel


PICKED = 4096 * 4 * 8  # numbers
INDICES = 4096 * 4


def test_slices_are_picked_as_they_lie() -> None:
    kernel = picked("f32[4096,4,8]", "{2,1,0}", "  ROOT %n = f32[4096,4,8] negate(%g)")
    assert kernel.read_bytes == 2048 * 32 * 4 + INDICES  # every slice of the table, some of them more than once
    assert kernel.fetched_bytes == PICKED * 4 + INDICES


def test_slices_that_are_written_across_take_a_sector_for_each_number() -> None:
    turned = "  ROOT %t = f32[4,8,4096] transpose(%g), dimensions={1,2,0}"
    assert picked("f32[4,8,4096]", "{2,1,0}", turned).fetched_bytes == PICKED * 32 + INDICES
    lying = "  %v = f32[4,8,4096] bitcast(%g)\n  ROOT %n = f32[4,8,4096] negate(%v)"
    assert picked("f32[4,8,4096]", "{0,2,1}", lying).fetched_bytes == PICKED * 32 + INDICES


def test_what_is_picked_is_fetched_as_often_as_it_is_repeated() -> None:
    body = """  %b = f32[3,4096,4,8] broadcast(%g), dimensions={1,2,3}
  ROOT %n = f32[3,4096,4,8] negate(%b)"""
    assert picked("f32[3,4096,4,8]", "{2,1,0}", body).fetched_bytes == 3 * PICKED * 4 + INDICES
    body = """  %b = f32[4096,4,8,3] broadcast(%g), dimensions={0,1,2}
  ROOT %n = f32[4096,4,8,3] negate(%b)"""
    assert picked("f32[4096,4,8,3]", "{2,1,0}", body).fetched_bytes == PICKED * 4 + INDICES  # neighbours are one number


def test_the_last_transpose_of_an_input_fusion_goes_through_tiles_and_others_do_not() -> None:
    last = """  %t = f32[256,512] transpose(%p), dimensions={1,0}
  ROOT %n = f32[256,512] negate(%t)"""
    assert not fused("f32[512,256]", "f32[256,512]", last, kind="kInput").fetched_bytes
    assert fused("f32[512,256]", "f32[256,512]", last, kind="kLoop").fetched_bytes == 8 * 512 * 256 * 4
    both = """  %t = f32[16,512,1024] transpose(%p), dimensions={0,2,1}
  ROOT %u = f32[512,1024,16] transpose(%t), dimensions={1,2,0}"""
    assert fused("f32[16,1024,512]", "f32[512,1024,16]", both, kind="kInput").fetched_bytes == 8 * 16 * 512 * 1024 * 4


def test_sums_before_a_last_transpose_are_loops_of_a_thread() -> None:
    text = f"""{HEAD}%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}}

%fused (p: f32[512,9,256]) -> f32[256,512] {{
  %p = f32[512,9,256] parameter(0)
  %z = f32[] constant(0)
  %r = f32[512,256] reduce(%p, %z), dimensions={{1}}, to_apply=%sum
  ROOT %t = f32[256,512] transpose(%r), dimensions={{1,0}}
}}

ENTRY %main (a: f32[512,9,256]) -> f32[256,512] {{
  %a = f32[512,9,256] parameter(0)
  ROOT %f = f32[256,512] fusion(%a), kind=kInput, calls=%fused
}}
"""
    ((kernel, _),) = lower_hlo(text).schedule.walk()
    assert kernel.kind is KernelKind.LOOP_FUSION


def test_a_loop_turns_bytes_one_by_one() -> None:
    """What XLA lays out anew before a tuned product; its kInput fusions pack them, and wider numbers are as they were."""
    body = "ROOT %t = {0}[512,256]{{1,0}} transpose(%p), dimensions={{1,0}}"
    flags = [
        "unpacked" in fused(f"{dtype}[256,512]", f"{dtype}[512,256]", body.format(dtype), kind=kind).flags
        for dtype, kind in (("s8", "kLoop"), ("s8", "kInput"), ("f32", "kLoop"))
    ]
    assert flags == [True, False, False]
