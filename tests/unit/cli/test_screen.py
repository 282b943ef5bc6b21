"""Whatever the terminal's size, what is shown fits in it."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console, RenderableType

from roq.cli import screen
from roq.client.admin.board import (
    ExchangeRow,
    MoveEvent,
    PublisherRow,
    QueueView,
    ScaleEvent,
    SubscriberRow,
)


def exchange(number: int, load: float, *, leaving: bool = False) -> ExchangeRow:
    return ExchangeRow(
        exchange=f"x{number}", number=number, host=f"127.0.0.{number}", load=load,
        messages_in=12_345.0, bytes_in=load * 1.25e6, messages_out=1e6, bytes_out=2e7,
        publishers=4, subscribers=20, acks_pending=0, lag_ms=1.5, cpu_percent=12.0,
        memory_bytes=48_000_000, ring_bytes=64 * 2**20, leaving=leaving,
    )  # fmt: skip


def view(exchanges: int, people: int = 16, events: int = 9, queue: str = "orders") -> QueueView:
    return QueueView(
        queue=queue, limit=1.25e6, publisher_count=people, subscriber_count=20, waiting=1,
        messages_in=735.0, bytes_in=3.7e6, messages_out=14_700.0, bytes_out=7.3e7,
        latency_ms=14.5, lost=0, moves=3,
        exchanges=[exchange(n, 1.3 / n, leaving=n == 3) for n in range(1, exchanges + 1)],
        publishers=[
            PublisherRow(publisher=f"{n:032x}", exchanges=["x1"], messages=1.0, bytes=2.0,
                         moving=n == 1, name="" if n % 3 else f"till-{n}.py/a-long-host:{n}")
            for n in range(people)
        ],
        subscribers=[
            SubscriberRow(subscriber=f"{n:032x}", messages=1.0, latency_ms=5.0, lost=0)
            for n in range(people)
        ],
        events=[
            *(
                MoveEvent(at=float(n), publisher=f"{n:032x}", sources=["x1"], targets=["x2"],
                          state="accepted", reason="x1 carries 130 % of its limit, " * 4,
                          bytes=3e5, pause_ms=3.4)
                for n in range(events)
            ),
            ScaleEvent(at=99.0, direction="out", state="done", exchange="x2", host="127.0.0.2",
                       reason="no room", seconds=0.6),
        ],
    )  # fmt: skip


def clock(moment: float) -> str:
    return f"12:00:{int(moment) % 60:02d}"


def shown(frame: RenderableType, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True, highlight=False)
    console.print(frame)
    return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.mark.parametrize("exchanges", [0, 1, 4, 40])
@pytest.mark.parametrize(("width", "height"), [(200, 50), (140, 36), (100, 24), (80, 24), (60, 12)])
def test_a_queue_fits_into_the_terminal(exchanges: int, width: int, height: int) -> None:
    room = screen.Room(width, height)
    lines = shown(screen.queue(view(exchanges), "running", "", room, clock, 128 * 2**20), width)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("orders  running")


@pytest.mark.parametrize("queues", [1, 5, 90])
def test_an_overview_fits_into_the_terminal(queues: int) -> None:
    views = [(view(4, queue=f"queue-{number}"), "running") for number in range(queues)]
    lines = shown(screen.overview(views, screen.Room(120, 24), clock), 120)
    assert len(lines) <= 24
    assert lines[1].startswith("queue-0")


def test_an_exchange_says_that_its_publishers_wait_and_whom_it_has_left_behind() -> None:
    slow = msgspec.structs.replace(exchange(1, 0.5), holding=True, behind=2)
    shown_view = msgspec.structs.replace(view(1), exchanges=[slow])
    drawn = screen.queue(shown_view, "running", "", screen.Room(80, None), clock, 128 * 2**20)
    assert "x1 held 2 behind" in "\n".join(shown(drawn, 80))


def test_everything_is_shown_where_there_is_room() -> None:
    text = "\n".join(
        shown(screen.queue(view(4), "running", "", screen.Room(160, None), clock, 128 * 2**20), 160)
    )
    for word in ("x3 leaving", "127.0.0.4", "130%", "MEMORY", "50%", "x1 moving", "LATENCY"):
        assert word in text
    assert "00000000  x1 → x2  300.0 kB/s  accepted (pause 3.4 ms)" in text
    assert "+ x2 on 127.0.0.2  done in 0.6 s  no room" in text


@pytest.mark.parametrize("width", [200, 80, 60])
def test_what_was_lost_is_always_shown(width: int) -> None:
    lines = shown(screen.queue(view(4), "running", "", screen.Room(width, 24), clock), width)
    assert any(line.endswith("limit 75.0 MB/min each   latency 14.5 ms   lost 0") for line in lines)


def test_what_matters_less_goes_first_where_it_is_narrow() -> None:
    lines = shown(screen.queue(view(4), "running", "", screen.Room(70, 24), clock), 70)
    heading = next(line for line in lines if line.startswith("EXCHANGE"))
    assert "LOAD" in heading
    assert "IN/S" in heading
    assert "MEMORY" not in heading


def test_a_publisher_is_shown_by_its_name_and_a_long_one_by_both_its_ends() -> None:
    given = msgspec.structs.replace(
        view(1, people=3),
        publishers=[
            PublisherRow(
                publisher=f"{n:032x}", exchanges=["x1"], messages=1.0, bytes=2.0, moving=False,
                name=name,
            )
            for n, name in enumerate(["till-7", "", "checkout.py/a-host-with-a-long-name:4711"])
        ],
        events=[
            MoveEvent(at=1.0, publisher="ab" * 16, sources=["x1"], targets=["x2"], state="accepted",
                      reason="", bytes=1.0, pause_ms=1.0, name="till-7")
        ],
    )  # fmt: skip
    text = "\n".join(
        shown(screen.queue(given, "running", "", screen.Room(80, 30), clock, 128 * 2**20), 80)
    )
    assert text.count("till-7") == 2
    assert "checkout.p…" in text
    assert "g-name:4711" in text
    assert f"{1:032x}"[:8] in text


def test_why_a_queue_does_not_run_is_said() -> None:
    lines = shown(
        screen.queue(view(0, 0, 0), "stopped", "orders is stopped", screen.Room(80, 24), clock), 80
    )
    assert "stopped" in lines[0]
    assert "orders is stopped" in lines


@pytest.mark.parametrize(
    ("load", "name"), [(0.0, "green"), (0.7, "yellow"), (0.9, "dark_orange"), (1.1, "red")]
)
def test_the_colour_says_how_near_the_limit_is(load: float, name: str) -> None:
    assert screen.colour(load) == name


def test_a_bar_is_as_long_as_the_load_and_marks_the_limit() -> None:
    assert screen.bar(0.0, 10).plain == "        │ "
    assert screen.bar(0.5, 10).plain == "████    │ "
    assert screen.bar(1.0, 10).plain == "████████│ "
    assert screen.bar(9.0, 10).plain == "██████████"


def test_eighty_columns_cut_nothing_that_matters_of_a_queue() -> None:
    room = screen.Room(80, 40)
    frame = screen.queue(view(2, people=3, events=2), "running", "", room, clock)
    text = "\n".join(shown(frame, 80))
    assert "2 exchanges · 3 publishers · 20 subscribers · 1 waiting · 3 moves" in text
    for heading in ("LOAD", "IN/S", "PUBS", "PUBLISHER", "SUBSCRIBER", "LATENCY", "LOST"):
        assert heading in text
    assert "130%" in text
    assert "          x1 carries 130 % of its limit" in text


@pytest.mark.parametrize("name", ["orders", "q" * 30, "q" * 64])
@pytest.mark.parametrize("state", ["running", "searching"])
@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_overview_keeps_names_loads_and_losses(name: str, state: str, width: int) -> None:
    big = msgspec.structs.replace(view(2, queue=name), lost=1_234_567, bytes_in=493e6)
    lines = shown(screen.overview([(big, state)], screen.Room(width, 24), clock), width)
    assert lines[1].startswith(name[:12])
    for kept in (state, "130%", "493.0 MB", "1,234,567"):
        assert kept in lines[1]


def test_requests_are_shown_where_there_are_services() -> None:
    shown_view, room = view(2), screen.Room(200, 50)

    def lines() -> list[str]:
        return shown(screen.queue(shown_view, "running", "", room, clock, 128 * 2**20), 200)

    assert not any("REQUESTS" in line for line in lines())
    shown_view.exchanges[0] = msgspec.structs.replace(shown_view.exchanges[0], requests=12_345)
    assert any("REQUESTS" in line for line in lines())
    assert any("12,345" in line for line in lines())
