"""The charts of a page obey mouse, keys and fingers, and fit a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import PROGRAM, Browser, browser
from runs import partly_heard, run_of, series_of

from roq.simulation.lab.report.page import written

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium"),
]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Path]]:
    folder = tmp_path_factory.mktemp("page")
    page = folder / "report.html"
    page.write_text(written(run_of("a"), partly_heard(series_of(20), 5, 6)), encoding="utf-8")
    with browser(folder / "browser") as found:
        yield found, page
        assert found.errors == []


def tells(found: Browser, *texts: str) -> None:
    """Wait until this stands beside the pointer."""
    for text in texts:
        found.until(f"!tip.hidden && tip.innerText.includes({json.dumps(text)})")


def place(found: Browser, chart: str, share: float) -> tuple[float, float]:
    """Where a moment stands in a chart, which is brought into sight."""
    left, top, width, height = found.js(
        f"(() => {{ const field = document.querySelector('#{chart} .field');"
        "field.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const box = field.getBoundingClientRect();"
        "return [box.left, box.top, box.width, box.height]; })()"
    )
    return left + share * width, top + height / 2


def test_the_mouse_shows_what_is_under_it(shown: tuple[Browser, Path]) -> None:
    found, page = shown
    found.open(page, 1280)
    found.point(*place(found, "throughput", 0.99))
    tells(found, "19 s – 20 s", "400/s")
    found.point(*place(found, "throughput", 0.3))
    tells(found, "statistics not heard")
    found.point(2, 2)
    found.until("tip.hidden")


def test_keys_go_from_window_to_window_and_from_chart_to_chart(
    shown: tuple[Browser, Path],
) -> None:
    found, page = shown
    found.open(page, 1280)
    found.js("document.querySelector('#throughput').focus()")
    found.key("Home")
    tells(found, "0 s – 1 s")
    found.key("ArrowRight")
    tells(found, "1 s – 2 s")
    found.key("ArrowRight", shift=True)
    tells(found, "11 s – 12 s")
    found.key("Tab")
    found.until("document.activeElement.id == 'latency'")
    tells(found, "11 s – 12 s", "p99.9")
    found.key("Escape")
    found.until("tip.hidden")
    found.key("End")
    found.key("ArrowLeft")
    tells(found, "18 s – 19 s")


def test_what_a_finger_has_shown_stays_until_another_place_is_touched(
    shown: tuple[Browser, Path],
) -> None:
    found, page = shown
    found.open(page, 390, touch=True)
    found.tap(*place(found, "throughput", 0.99))
    found.until("document.activeElement.id == 'throughput'")
    tells(found, "19 s – 20 s")
    found.tap(*place(found, "cpu", 0.99))
    found.until("document.activeElement.id == 'cpu'")
    tells(found, "20 %")
    found.js("document.querySelector('h1').scrollIntoView({behavior: 'instant'})")
    found.tap(20, 60)
    found.until("tip.hidden")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_is_no_wider_than_the_screen(shown: tuple[Browser, Path], width: int) -> None:
    found, page = shown
    found.open(page, width)
    assert found.js("document.documentElement.scrollWidth <= innerWidth")
