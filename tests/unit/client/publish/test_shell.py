"""The shell of a publisher; the rest is tested with real exchanges."""

from __future__ import annotations

import os
from contextlib import nullcontext
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roq.client.io.waiters import Waiters
from roq.client.publish.shell import PublisherShell
from roq.errors import Closed


def test_a_child_forked_in_the_middle_of_work_says_no_goodbye_over_its_parents_connection() -> None:
    def check_process() -> None:
        raise Closed("forked")

    def fail(_: object) -> None:
        raise AssertionError("found torn, the publisher fails and says so to its exchange")

    shell = SimpleNamespace(
        failure=None, machine=SimpleNamespace(changing=True), _fail=fail, _queue="orders",
        _engine=SimpleNamespace(check_process=check_process),
    )  # fmt: skip
    with pytest.raises(Closed, match="forked"):
        PublisherShell._whole(cast("PublisherShell", shell))


@pytest.mark.parametrize(
    ("read", "deadline", "effects", "news"),
    [(False, None, [], False), (True, None, [], True), (False, 0.0, [], True),
     (False, float("inf"), ["one"], True)],
)  # fmt: skip
def test_a_tick_is_news_if_it_has_read_or_done_something_or_a_deadline_is_over(
    read: bool, deadline: float | None, effects: list[str], news: bool
) -> None:
    told: list[bool] = []
    shell = ticking(told, deadline, attended=False)
    shell.machine.handle, shell._read = lambda *_: effects, lambda _: read
    PublisherShell._look_at_clock(cast("PublisherShell", shell))
    assert told == [news]


@pytest.mark.parametrize(
    ("deadline", "packed", "loops", "attend_until", "looks"),
    [(None, [], False, 0.0, False), (inf, [], False, 0.0, False), (0.0, [], False, 0.0, True),
     (None, ["open"], False, 0.0, True), (None, [], True, 0.0, True), (None, [], False, inf, True)],
)  # fmt: skip
def test_who_sends_and_reads_is_left_alone_unless_more_is_wanted(
    deadline: float | None, packed: list[str], loops: bool, attend_until: float, looks: bool
) -> None:
    told: list[bool] = []
    shell = ticking(told, deadline, attended=True)
    shell.machine.packer, shell._waiters.loops, shell._attend_until = packed, loops, attend_until
    PublisherShell._look_at_clock(cast("PublisherShell", shell))
    assert bool(told) is looks


@pytest.mark.parametrize("timeout", [-1.0, 0.0, 1e-9, 1.0, None])
def test_what_is_there_is_read_however_short_the_wait(timeout: float | None) -> None:
    shell, happened = waiting()
    assert PublisherShell.wait_for(shell, lambda: "read" in happened, timeout)
    assert happened == (["read"] if timeout is not None and timeout <= 0 else ["flushed", "read"])


def test_who_waits_sleeps_before_it_reads() -> None:
    shell, happened = waiting()
    assert PublisherShell.wait_for(shell, lambda: True, 1.0)
    assert happened == ["flushed"], "what it waits for may be there without"
    os.close(*shell._connections.fds)


def waiting() -> tuple[PublisherShell, list[str]]:
    """A publisher's shell whose connection has something, and what happens."""
    happened: list[str] = []
    readable = os.eventfd(1)
    shell = SimpleNamespace(
        _engine=SimpleNamespace(check_process=lambda: None, check=lambda: None, inside=False),
        guard=SimpleNamespace(check=lambda: None), lock=nullcontext(), failure=None,
        _waiters=Waiters(), _whole=lambda: True, away_seconds=0.0, _attend_until=0.0,
        _connections=SimpleNamespace(
            flush=lambda: happened.append("flushed"), fds=[readable], watched=True
        ),
    )  # fmt: skip

    def catch_up(_now: float, _bell: int) -> None:
        happened.append("read")
        os.close(readable)

    shell._catch_up = catch_up
    return cast("PublisherShell", shell), happened


def ticking(told: list[bool], deadline: float | None, *, attended: bool) -> SimpleNamespace:
    """A shell in whose tick nothing happens; whether it settles with news is told."""
    machine = SimpleNamespace(next_deadline=lambda: deadline, handle=lambda *_: [], packer=[])
    return SimpleNamespace(
        machine=machine, _alarm=SimpleNamespace(rung=lambda: None, set=lambda at: None),
        _connections=SimpleNamespace(attended=lambda now: attended), _attend_until=0.0,
        _waiters=SimpleNamespace(loops=False), _whole=lambda: True, _read=lambda _: False,
        _perform=lambda *_: None, _settle=lambda _, news: told.append(news),
    )  # fmt: skip


@pytest.mark.parametrize(("threads", "loops"), [(False, False), (True, False), (False, True)])
def test_for_who_waits_what_is_sealed_leaves_at_once_and_what_has_come_is_told(
    threads: bool, loops: bool
) -> None:
    under_way: list[int] = []
    rings: list[int] = []
    link = SimpleNamespace(
        transmit=lambda now: ["batch"], number=1, window=SimpleNamespace(bytes_under_way=9)
    )
    shell = SimpleNamespace(
        machine=SimpleNamespace(links=SimpleNamespace(all=[link], pausing=False)),
        _connections=SimpleNamespace(watched=False, holding=False), _unread=0,
        _waiters=SimpleNamespace(threads=threads, loops=loops, ring=lambda: rings.append(1)),
        _transmit=lambda link, batches, now, size: under_way.append(size),
        _read=lambda now: True, _alarm=SimpleNamespace(need=lambda at: None),
    )  # fmt: skip
    PublisherShell._push(cast("PublisherShell", shell), 1.0)
    waited = threads or loops
    assert (under_way, len(rings)) == ([0 if waited else 9], waited)


@pytest.mark.parametrize(
    ("threads", "news", "rung"), [(True, False, 0), (True, True, 1), (False, False, 1)]
)
def test_threads_that_wait_are_rung_only_if_there_is_news(
    threads: bool, news: bool, rung: int
) -> None:
    """They read themselves: else a look of the I/O thread would wake them while they wait."""
    rings: list[Any] = []
    flushed: list[Any] = []
    links = SimpleNamespace(tally=SimpleNamespace(fenced=""), unsettled=False, ready=True)
    shell = SimpleNamespace(
        machine=SimpleNamespace(links=links, full_batches=0, next_deadline=lambda: None),
        failure=None, _seal_due=lambda _: None, _read=lambda _: False, _full_seen=0,
        _away_until=0.0,
        _connections=SimpleNamespace(watch=lambda wanted: None, flush=lambda: flushed.append(1)),
        _waiters=SimpleNamespace(threads=threads, loops=False, ring=lambda: rings.append(1)),
        _alarm=SimpleNamespace(set=lambda at: None), _was_ready=True,
    )  # fmt: skip
    PublisherShell._settle(cast("PublisherShell", shell), 1.0, news=news)
    assert len(rings) == rung
    assert flushed, "the I/O thread leaves nothing held: it may not come again soon"
