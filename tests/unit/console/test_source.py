"""What the console knows of its cluster, and what it says when the cluster is away."""

from __future__ import annotations

import pytest
from commands import until
from paper_console import PaperSource, group

from roq.console.source import Connection, Source
from roq.errors import Unavailable


def test_a_cluster_that_was_never_there_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roq.console.source.ANSWER_SECONDS", 0.01)
    source = Source("127.0.0.1:1")
    source._away("nothing listens")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 is away: nothing listens"):
        source.cluster()
    first = source.connection()
    source._away("still nothing")
    assert (first.reason, source.connection().reason) == ("nothing listens", "still nothing")
    assert first.since == source.connection().since
    source.close()


def test_a_cluster_that_does_not_answer_any_more_is_away() -> None:
    source = PaperSource()
    assert source.connection().reason == ""

    def silent() -> None:
        raise Unavailable("no answer within 3 s")

    source.paper.hosts = silent  # type: ignore[method-assign, assignment]
    source.looks.forget()
    assert until(lambda: source.connection().reason == "no answer within 3 s", 30)
    source.close()


def test_a_queue_whose_monitor_is_silent_has_no_view() -> None:
    source = PaperSource()
    assert source.view("load") is not None
    assert source.view("nix") is None
    assert source.history("nix") == []
    assert source._connection == Connection("", 0.0)
    source.close()


def test_the_group_of_whoever_looks_at_dead_letters_does_not_count_as_stalled() -> None:
    source = PaperSource()
    reasons = ["exchange x1: it has no member here"]
    source.paper.all_groups = [group("dead-letters", stalled=reasons), group(stalled=reasons)]
    try:
        rows = source.groups("load", wait=30.0).get()
        assert [(row.name, row.stalled) for row in rows] == [
            ("dead-letters", []), ("billing", reasons),
        ]  # fmt: skip
        assert source.group("load", "dead-letters").get()[0].state == "running"
    finally:
        source.close()
