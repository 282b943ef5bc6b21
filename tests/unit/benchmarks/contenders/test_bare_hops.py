"""Both forwarders pass on what is sent, as it is, and say where they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
from one_context import OneContext

from roq.benchmarks.case import Case, Run
from roq.benchmarks.clients import payloads_of
from roq.benchmarks.contenders import bare_hops, zmq_clients
from roq.benchmarks.contenders.bare_hops import HOP, PROXY, BareServer, publisher, subscriber

RUN = Run(topic="bench.1.", size=8, batch=3, count=10)


@pytest.fixture(params=[PROXY, HOP])
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def options(style: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Where a forwarder of this style serves, in a thread of this process."""
    bound: list[str] = []
    ready = threading.Event()
    library = OneContext()

    def told(*endpoints: str, flush: bool) -> None:
        assert flush
        bound.extend(endpoints)
        ready.set()

    def serve() -> None:
        try:
            bare_hops.serve(style)
        except zmq.ContextTerminated:
            for each in library.sockets:
                each.close(linger=0)

    with monkeypatch.context() as patch:
        patch.setattr(bare_hops, "zmq", library)
        patch.setattr(bare_hops, "print", told, raising=False)
        thread = threading.Thread(target=serve)
        thread.start()
        assert ready.wait(20)
    yield dict(zip(("data", "live"), bound, strict=True))
    library.context.term()
    thread.join()


@pytest.fixture
def _clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The sockets of clients, which end with their processes, are closed here."""
    library = OneContext()
    monkeypatch.setattr(zmq_clients, "zmq", library)
    yield
    library.close()


@pytest.mark.usefixtures("_clients")
def test_everything_that_is_sent_arrives_and_is_counted(
    style: str, options: dict[str, str]
) -> None:
    sends, takes = publisher(style, options), subscriber(style, options)
    takes.open(RUN)
    sends.open(RUN)
    sends.publish(RUN, payloads_of(RUN))
    takes.receive(RUN)
    takes.close()


def test_a_server_is_where_its_program_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def program(argv: list[str], _log: Path) -> Any:
        ran.append(argv)
        return SimpleNamespace(read_line=lambda _: b"tcp://a:1 tcp://a:2", pid=7)

    server = BareServer(HOP)
    monkeypatch.setattr(server, "_run", program)
    server.start(Path())
    assert server.options(Case(size=8)) == {"data": "tcp://a:1", "live": "tcp://a:2"}
    assert ran[0][-2:] == ["roq.benchmarks.contenders.bare_hops", HOP]


def test_each_forwarder_is_a_contender_with_a_server_of_its_own() -> None:
    first, second = bare_hops.contenders()
    assert (first.key, second.key) == (PROXY, HOP)
    assert first.server is not second.server
    assert (first.missing(), second.missing()) == (None, None)
