"""The report as a person sees it, in the system's Chromium with the network off."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from meshcast.report import ReportData, Subject, prediction_data, shown
from meshcast.report.contents import Kind, folder_data
from tests.accessibility import barriers
from tests.perfetto_page import PERFETTO
from tests.report.conftest import HOSTILE, Open

VALUES = {
    "s": (0.0, 1.0, 0.93011, 0.99949, 0.9996e-3, 1.234e-5, 7.5e-9, 12345.6, 3.1e7),
    "B": (0, 1, 1023, 1024, 2**20 - 1, 1.5e9, 8e10, 7e15),
    "FLOP/s": (989.4e12, 1.0, 33.5e12, 4.2e18),
    "J": (651.05, 4.79e3, 1e-5, 5.1e7),
    "share": (0.0, 0.0004, 0.0005, 0.4581, 1.652),
    "W": (700.2, 3.14159, 12345.0),
    "count": (4306, 0, 12.5, 1234567),
    "USD": (0.421, 210512.3, 1.2e7),
    "ratio": (1.0, 0.691, 12.345),
    "tokens/s": (563680.1, 0.42, 24.8e9, 999.4, 1e6, 2.5e15),
    "1": (1, 0.8, -0.33333, 0),
    "": (3, 2.71828, 1234567),
}


def test_numbers_are_those_of_the_prediction(open_report: Open, single: Subject, single_data: ReportData) -> None:
    opened = open_report(single_data)
    prediction = single.prediction.to_json()
    assert opened.number("#headline .q") == prediction["step_time_s"]
    assert opened.page.locator("#headline").inner_text() == shown(prediction["step_time_s"], "s")
    for part, seconds in prediction["breakdown_s"].items():
        if seconds:
            assert opened.number(f".lead .piece.part-{part}") == seconds
    figures = {
        "mfu": prediction["mfu"],
        "peak_memory": prediction["memory_bytes"]["peak"],
        "energy": prediction["energy_j"],
    }
    for term, value in figures.items():
        assert opened.number(f'.figures .q[data-term="{term}"]') == value
    levers = opened.page.locator('[data-table="helps"] td.bar').evaluate_all(
        "cells => cells.map(c => +c.dataset.value)"
    )
    assert levers == [lever["saved_share"] for lever in prediction["levers"]]
    assert opened.page.evaluate("Report.prediction.step_time_s") == prediction["step_time_s"]
    assert opened.wrong == []


CUT = "all => all.filter(each => { const box = each.getBoundingClientRect(); return box.right > innerWidth; }).length"


def test_tables_are_whole_on_a_phone(
    open_report: Open, staged: Subject, explored: Path, compared: Path, single_data: ReportData
) -> None:
    """A row of more columns than there is room for stands as a card: nothing lies behind the right edge."""
    for data in (
        single_data, prediction_data(staged), folder_data(explored, "exploration"), folder_data(compared, "comparison"),
    ):  # fmt: skip
        opened = open_report(data, width=390)
        assert opened.page.locator(".table td, #points td").count() >= 4
        assert opened.page.locator(".table td, #points td").evaluate_all(CUT) == 0
        assert barriers(opened.page) == []
        assert opened.wrong == []


def test_cards_of_a_phone_name_their_cells_and_are_sorted(open_report: Open, single_data: ReportData) -> None:
    opened = open_report(single_data, width=390)
    page = opened.page
    helps = page.locator('[data-table="helps"] td')
    assert helps.nth(2).evaluate("each => getComputedStyle(each, '::before').content") == '"saves"'
    kernels = page.locator('[data-table="kernels"] table')
    kernels.locator("th button", has_text="time").first.click()
    times = kernels.locator("tbody tr").evaluate_all("rows => rows.map(row => +row.cells[1].dataset.value)")
    assert times == sorted(times, reverse=True)
    assert len(times) > 2
    assert opened.wrong == []


def test_cells_of_a_card_stand_in_one_line_with_what_they_are_called(open_report: Open, sharded: Subject) -> None:
    """Where a cell does not fit into half of a line it has one to itself; a number is never below its name."""
    page = open_report(prediction_data(sharded), width=390).page
    heights = page.locator(".stacked td.num:not(:first-child)").evaluate_all(
        "cells => cells.filter(cell => cell.offsetParent).map(cell => cell.offsetHeight)"
    )
    assert len(heights) > 20
    assert max(heights) < 30


def test_targets_of_a_comparison_are_told_apart_by_what_differs(open_report: Open, compared: Path) -> None:
    data = folder_data(compared, "comparison")
    first, *_ = answers = data["sections"]["comparison"]["answers"]
    data["sections"]["comparison"]["answers"] = [
        {**each, "target": f"llama3-8b, plan {plan}"} for plan in ("fsdp=8", "tp=8") for each in answers
    ]
    page = open_report(data, width=390).page
    plot = page.locator('[data-plot="comparison"]')
    texts = plot.locator("svg text").evaluate_all(
        "texts => texts.map(each => [each.textContent, each.getBoundingClientRect().top, each.getBoundingClientRect().height])"
    )
    said = [text for text, *_ in texts]
    assert {"fsdp=8", "tp=8"} <= set(said)
    assert not any("…" in text or "..." in text for text in said)
    place = next(number for number, text in enumerate(said) if text == "fsdp=8")
    assert said[place + 1] == first["on"]
    assert texts[place + 1][1] - texts[place][1] > 0.7 * texts[place][2]  # below it, not on top of it
    assert len([text for text in said if text.endswith("s")]) > 1  # an axis of one number tells no scale


@pytest.mark.parametrize("kind", ["exploration", "comparison"])
def test_step_times_are_in_sight_beside_what_they_are_of(
    open_report: Open, kind: Kind, explored: Path, compared: Path
) -> None:
    opened = open_report(folder_data(explored if kind == "exploration" else compared, kind))
    place = "#points" if kind == "exploration" else '[data-table="cells"]'
    cell = opened.page.locator(f'{place} tbody tr:first-child td[data-term="step_time"]').first
    assert cell.evaluate("each => each.cellIndex") <= 3
    assert cell.evaluate_all(CUT) == 0


def test_hostile_names_are_shown_as_they_are(open_report: Open, single_data: ReportData) -> None:
    opened = open_report(single_data)
    assert HOSTILE in opened.page.content().replace("&lt;", "<").replace("&gt;", ">")
    assert opened.page.locator("img").count() == 0
    point = opened.page.locator('[data-plot="timeline"] canvas')
    point.scroll_into_view_if_needed()
    for across in range(200, 240):  # the page scrolls smoothly: where the picture was it may be no more
        box = point.bounding_box()
        opened.page.mouse.move(box["x"] + across, box["y"] + box["height"] - 12)
        if opened.page.locator("#tip").is_visible():
            break
        opened.page.wait_for_timeout(50)
    opened.page.locator("#tip").wait_for(state="visible")
    assert opened.page.locator("#tip img, #tip script").count() == 0
    assert opened.wrong == []


def test_both_ways_to_write_a_number_agree(open_report: Open, single_data: ReportData) -> None:
    opened = open_report(single_data)
    pairs = [(value, unit) for unit, values in VALUES.items() for value in values]
    written = opened.page.evaluate("pairs => pairs.map(([value, unit]) => Units.shown(value, unit))", pairs)
    assert written == [shown(value, unit) for value, unit in pairs]


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_every_picture_is_drawn_at_every_width(open_report: Open, sharded: Subject, width: int, scheme: str) -> None:
    opened = open_report(prediction_data(sharded), width=width, scheme=scheme)
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("roofline", "memory", "matrix", "power"):
        assert page.locator(f'[data-plot="{name}"] svg').count() == 1
    filled = "c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return new Set(d).size }"
    assert page.locator('[data-plot="timeline"] canvas').evaluate(filled) > 8
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    assert opened.wrong == []


def test_words_are_explained_and_tables_are_sorted(open_report: Open, single_data: ReportData) -> None:
    opened = open_report(single_data)
    page = opened.page
    page.locator('.figures dt[data-term="mfu"]').focus()
    assert "Model FLOPs utilisation" in page.locator("#tip").inner_text()
    table = page.locator('[data-table="kernels"] table')
    values = "rows => rows.map(row => +row.cells[1].dataset.value)"
    table.locator("th button", has_text="time").first.click()
    down = table.locator("tbody tr").evaluate_all(values)
    table.locator("th button", has_text="time").first.click()
    assert table.locator("tbody tr").evaluate_all(values) == sorted(down) == down[::-1]
    assert opened.wrong == []


def test_the_timeline_is_zoomed_and_the_trace_is_had_without_a_network(
    open_report: Open, single_data: ReportData
) -> None:
    opened = open_report(single_data)
    page = opened.page
    canvas = page.locator('[data-plot="timeline"] canvas')
    before = canvas.evaluate("c => c.toDataURL()")
    page.locator("#timeline [data-zoom=in]").click()
    page.wait_for_function("([c, before]) => c.toDataURL() !== before", arg=[canvas.element_handle(), before])
    page.locator("[data-perfetto]").click()
    assert "The network is off" in page.locator("[data-said]").inner_text()
    with page.expect_download() as taken:
        page.locator("[data-download]").click()
    assert Path(taken.value.path()).read_bytes()[:2] == b"\x1f\x8b"
    assert opened.wrong == []


def test_the_trace_is_handed_to_perfetto(open_report: Open, single_data: ReportData) -> None:
    opened = open_report(single_data, offline=False)
    page = opened.page
    page.context.route(
        "https://ui.perfetto.dev/**", lambda route: route.fulfill(body=PERFETTO, content_type="text/html")
    )
    with page.expect_popup() as window:
        page.locator("[data-perfetto]").click()
    page.wait_for_function("() => document.querySelector('[data-said]').textContent === 'Opened in Perfetto.'")
    (trace,) = single_data["traces"]
    size = len(base64.b64decode(trace["data"]))
    window.value.wait_for_function("said => document.title === said", arg=f"{trace['file']} {size}")
    assert opened.wrong == []


def test_a_search_is_filtered(open_report: Open, explored: Path) -> None:
    opened = open_report(folder_data(explored, "exploration"))
    page = opened.page
    assert page.locator("[data-count]").inner_text() == "6 of 6 points"
    page.locator("[data-filter]").fill("plan-1")
    assert page.locator("[data-count]").inner_text() == "1 of 6 points"
    assert page.locator("#points tbody tr").count() == 1
    assert page.locator('[data-plot="front"] svg').count() == page.locator('[data-plot="parallel"] svg').count() == 1
    assert opened.wrong == []


def test_points_of_the_roofline_are_told_and_zoomed_to(open_report: Open, single_data: ReportData) -> None:
    opened = open_report(single_data)
    page, plot = opened.page, opened.page.locator('[data-plot="roofline"]')
    plot.scroll_into_view_if_needed()
    places = """host => {
        const chart = echarts.getInstanceByDom(host), at = chart.getOption().series.findIndex(each => each.type === "scatter");
        const drawn = chart.getOption().series[at].data;
        return drawn.map(({ value, point }) => [point.name, ...chart.convertToPixel({ seriesIndex: at }, value)]);
    }"""
    name, across, down = plot.evaluate(places)[0]
    box = plot.bounding_box()
    page.mouse.move(box["x"] + across, box["y"] + down)
    told = plot.locator("div", has_text="of its roof").last
    told.wait_for(state="visible")
    assert name in plot.inner_text()
    assert "model.py:40" in plot.inner_text() or ".py:12" in plot.inner_text(), "the line of the user's program"
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    zoom = (
        "host => { const { start, end } = echarts.getInstanceByDom(host).getOption().dataZoom[0]; return end - start }"
    )
    assert plot.evaluate(zoom) < 100
    assert opened.wrong == []


def test_paper_is_light_whatever_the_screen_is(open_report: Open, single_data: ReportData) -> None:
    opened = open_report(single_data, scheme="dark")
    page = opened.page
    ground = "getComputedStyle(document.querySelector('.card')).backgroundColor"
    dark = page.evaluate(ground)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(ground) == "rgb(255, 255, 255)" != dark
    page.emulate_media(media="screen", color_scheme="dark")
    assert page.evaluate(ground) == dark
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert opened.wrong == []


def test_nothing_is_cut_on_paper(
    open_report: Open, staged: Subject, explored: Path, priced: Path, compared: Path
) -> None:
    """Pictures are drawn as wide as paper is, not as the screen was; A4 has 182 mm between the margins."""
    searches = [folder_data(folder, "exploration") for folder in (explored, priced)]
    for data in (prediction_data(staged), *searches, folder_data(compared, "comparison")):
        opened = open_report(data)
        page = opened.page
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 688, "height": 900})
        for each in page.locator(".plot svg, .lanes canvas").all():
            box = each.bounding_box()
            assert box is not None
            assert 400 < box["width"] < 688
            assert 60 < box["height"] < 700
        assert page.locator("main *").evaluate_all(CUT) == 0
        assert page.locator("th button").first.evaluate("each => getComputedStyle(each).display") == "contents"
        page.emulate_media(media="screen")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert opened.wrong == []


# Texts that are a number, with or without a unit; code, names of sections and pictures aside, which have their own words.
UNEXPLAINED = r"""() => {
    const number = /^[<~+\-−–]?\s*\d[\d.,]*(e[+-]?\d+)?(\s*[%×]|\s+[A-Za-zµ%×(][^=]*)?$/;
    const apart = "code, pre, button, select, svg, h2, h3, summary, figcaption, #glossary, .foot, .note, [role=status]";
    const walk = document.createTreeWalker(document.getElementById("content"), NodeFilter.SHOW_TEXT), found = [];
    let seen = 0;
    while (walk.nextNode()) {
        const text = walk.currentNode.textContent.trim(), holder = walk.currentNode.parentElement;
        if (!number.test(text) || holder.closest(apart)) continue;
        seen++;
        const told = holder.closest("[data-term]");
        if (!told || !Report.glossary[told.dataset.term]) found.push(`${holder.closest(".section").id}: ${text}`);
    }
    for (const each of document.querySelectorAll("#content .q, #content td.num")) {
        if (!each.dataset.unit && each.matches(".q")) found.push(`no unit: ${each.textContent}`);
    }
    return [seen, found];
}"""


def test_every_number_says_what_it_means(
    open_report: Open, sharded: Subject, staged: Subject, explored: Path, compared: Path
) -> None:
    """Under the pointer or with the keyboard: the glossary's text for it, and its unit beside it."""
    for data in (
        prediction_data(sharded), prediction_data(staged), folder_data(explored, "exploration"),
        folder_data(compared, "comparison"),
    ):  # fmt: skip
        seen, unexplained = open_report(data).page.evaluate(UNEXPLAINED)
        assert seen > 10
        assert unexplained == []


def test_nothing_stands_in_the_way_of_readers(open_report: Open, staged: Subject, explored: Path) -> None:
    for data, scheme in ((prediction_data(staged), "light"), (folder_data(explored, "exploration"), "dark")):
        assert barriers(open_report(data, scheme=scheme).page) == [], scheme
