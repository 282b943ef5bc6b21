"""The charts of a page obey mouse, keys and fingers, and fit a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import PROGRAM, Browser, browser
from runs import partly_heard, run_of, series_of

from simulation.report.page import written

pytestmark = [
    pytest.mark.integration,
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


def told(found: Browser) -> str:
    """What stands beside the pointer; nothing if it is hidden."""
    text = found.js("tip.hidden ? '' : tip.innerText")
    return str(text)


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
    assert "19 s – 20 s" in told(found)
    assert "400/s" in told(found)
    found.point(*place(found, "throughput", 0.3))
    assert "statistics not heard" in told(found)
    found.point(2, 2)
    assert told(found) == ""


def test_keys_go_from_window_to_window_and_from_chart_to_chart(
    shown: tuple[Browser, Path],
) -> None:
    found, page = shown
    found.open(page, 1280)
    found.js("document.querySelector('#throughput').focus()")
    found.key("Home")
    assert "0 s – 1 s" in told(found)
    found.key("ArrowRight")
    assert "1 s – 2 s" in told(found)
    found.key("ArrowRight", shift=True)
    assert "11 s – 12 s" in told(found)
    found.key("Tab")
    assert found.js("document.activeElement.id") == "latency"
    assert "11 s – 12 s" in told(found)
    assert "p99.9" in told(found)
    found.key("Escape")
    assert told(found) == ""
    found.key("End")
    found.key("ArrowLeft")
    assert "18 s – 19 s" in told(found)


def test_what_a_finger_has_shown_stays_until_another_place_is_touched(
    shown: tuple[Browser, Path],
) -> None:
    found, page = shown
    found.open(page, 390, touch=True)
    found.tap(*place(found, "throughput", 0.99))
    found.until("document.activeElement.id == 'throughput'")
    assert "19 s – 20 s" in told(found)
    found.tap(*place(found, "cpu", 0.99))
    found.until("document.activeElement.id == 'cpu'")
    assert "20 %" in told(found)
    found.js("document.querySelector('h1').scrollIntoView({behavior: 'instant'})")
    found.tap(20, 60)
    found.until("tip.hidden")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_is_no_wider_than_the_screen(shown: tuple[Browser, Path], width: int) -> None:
    found, page = shown
    found.open(page, width)
    assert found.js("document.documentElement.scrollWidth <= innerWidth")
