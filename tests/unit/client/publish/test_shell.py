"""The shell of a publisher; the rest is tested with real exchanges."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

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
    shell = SimpleNamespace(
        _alarm=SimpleNamespace(rung=lambda: None), _whole=lambda: True,
        _waiters=SimpleNamespace(loops=True),
        machine=SimpleNamespace(
            next_deadline=lambda: deadline, handle=lambda *_: effects, packer=()
        ),
        _read=lambda _: read, _perform=lambda *_: None,
        _settle=lambda _, news: told.append(news),
    )  # fmt: skip
    PublisherShell._look_at_clock(cast("PublisherShell", shell))
    assert told == [news]


@pytest.mark.parametrize(
    ("threads", "news", "rung"), [(True, False, 0), (True, True, 1), (False, False, 1)]
)
def test_threads_that_wait_are_rung_only_if_there_is_news(
    threads: bool, news: bool, rung: int
) -> None:
    """They read themselves: else a look of the I/O thread would wake them while they wait."""
    rings: list[Any] = []
    links = SimpleNamespace(tally=SimpleNamespace(fenced=""), unsettled=False, ready=True)
    shell = SimpleNamespace(
        machine=SimpleNamespace(links=links, full_batches=0, next_deadline=lambda: None),
        failure=None, _seal_due=lambda _: None, _read=lambda _: False, _full_seen=0,
        _away_until=0.0, _connections=SimpleNamespace(watch=lambda wanted: None),
        _waiters=SimpleNamespace(threads=threads, loops=False, ring=lambda: rings.append(1)),
        _alarm=SimpleNamespace(set=lambda at: None), _was_ready=True,
    )  # fmt: skip
    PublisherShell._settle(cast("PublisherShell", shell), 1.0, news=news)
    assert len(rings) == rung
