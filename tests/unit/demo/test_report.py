"""The comparison must notice whatever can go wrong."""

from __future__ import annotations

import msgspec
import pytest

from roq.demo.report import Progress, Ready, StreamDigest, WorkerFinished, compare, decode, encode


def stream(
    publisher: str = "aa", topic: str = "t", digest: str = "d", messages: int = 3
) -> StreamDigest:
    return StreamDigest(publisher=publisher, topic=topic, messages=messages, bytes=9, sha256=digest)


def finished(*streams: StreamDigest) -> WorkerFinished:
    return WorkerFinished(streams=list(streams), first=1.0, last=2.0)


def test_equal_streams_are_equal() -> None:
    one, two = stream("aa"), stream("bb")
    verdict = compare([finished(one), finished(two)], [finished(two, one), finished(one, two)])
    assert verdict.equal
    assert [row.received for row in verdict.rows] == [(True, True), (True, True)]


@pytest.mark.parametrize(
    "got",
    [
        finished(),
        finished(stream(digest="other")),
        finished(stream(messages=4)),
        finished(stream(topic="u")),
        finished(stream(), stream("cc")),
    ],
    ids=["missing", "content", "count", "topic", "stray"],
)
def test_any_difference_is_noticed(got: WorkerFinished) -> None:
    assert not compare([finished(stream())], [finished(stream()), got]).equal


def test_nothing_at_all_is_no_success() -> None:
    assert not compare([finished()], [finished()]).equal


@pytest.mark.parametrize("report", [Ready(), Progress(messages=1, bytes=2), finished(stream())])
def test_reports_travel_as_lines(report: Ready | Progress | WorkerFinished) -> None:
    line = encode(report)
    assert line.endswith(b"\n")
    assert decode(line) == report


def test_other_lines_are_no_reports() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(b"Traceback (most recent call last):")
