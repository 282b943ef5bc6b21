"""The statistics stream of a queue is found again, and says what is the matter meanwhile."""

from __future__ import annotations

from typing import cast

import kpi_samples
import msgspec
import pytest
from paper_exchanges import queue
from paper_managers import PaperManagers

from roq.client.admin import statistics
from roq.client.admin.management import Management
from roq.client.admin.statistics import Statistics, StreamState
from roq.client.io.engine import Engine
from roq.errors import QueueNotFound, RemoteProtocolError, Unavailable
from roq.protocol.documents import RawDocument


@pytest.fixture
def managers() -> PaperManagers:
    return PaperManagers()


@pytest.fixture
def stream(engine: Engine, managers: PaperManagers) -> Statistics:
    made = Statistics(engine, cast("Management", managers), "load")
    engine.run_sync(lambda: None)
    return made


def answer(stream: Statistics, managers: PaperManagers, answer: RawDocument | Exception) -> None:
    assert managers.requests == [{"CMD": 2104, "QName": "load"}] * len(managers.asked)
    last = managers.asked[-1]
    give = last.set_exception if isinstance(answer, Exception) else last.set_result
    stream._engine.run_sync(lambda: give(answer))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (QueueNotFound("no queue load"), StreamState.MISSING),
        (Unavailable("nobody"), StreamState.SEARCHING),
    ],
)
def test_a_queue_that_is_not_there_is_looked_for_again(
    stream: Statistics, managers: PaperManagers, error: Exception, state: StreamState
) -> None:
    answer(stream, managers, error)
    assert (stream.state, stream.reason) == (state, str(error))
    stream._engine.run_sync(stream._silent)
    assert len(managers.asked) >= 2


def test_a_queue_without_a_monitor_is_stopped_and_its_limits_are_known(
    stream: Statistics, managers: PaperManagers
) -> None:
    described = msgspec.to_builtins(queue(running=False))
    answer(stream, managers, described)
    assert (stream.state, stream.reason) == (StreamState.STOPPED, "queue load is running")
    assert stream.limits is not None


def test_documents_make_it_live_and_silence_makes_it_search(
    stream: Statistics, managers: PaperManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = kpi_samples.exchange(0.0, 1).document
    other = kpi_samples.exchange(0.0, 1, queue="other").document
    said: list[object] = [document, other, RemoteProtocolError("odd"), document]

    def decode(_frames: list[bytes]) -> object:
        each = said.pop(0)
        if isinstance(each, Exception):
            raise each
        return each

    monkeypatch.setattr(statistics, "decode_numeric", decode)
    while said:
        stream._engine.run_sync(lambda: stream._received([]))
    assert [each.document for each in stream.waiting()] == [document, document]
    assert (stream.state, stream.foreign, stream.malformed) == (StreamState.LIVE, 1, 1)
    stream._engine.run_sync(stream._silent)
    assert stream.state is StreamState.SEARCHING
    assert "silent" in stream.reason
    assert len(managers.asked) == 2
