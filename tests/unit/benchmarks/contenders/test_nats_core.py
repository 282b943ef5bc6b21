"""What a NATS server is told, and that its clients send and count every message."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paper_nats import PaperNats

from roq.benchmarks.case import Case, Run
from roq.benchmarks.clients import payloads_of
from roq.benchmarks.contenders import nats_core
from roq.benchmarks.contenders.nats_core import NatsServer, publisher, subscriber

RUN = Run(topic="bench.1.", size=8, batch=3, count=10)
PACED = Run(topic="bench.2.", size=8, batch=1, count=4, rate=1_000)
OPTIONS = {"url": "nats://a"}


@pytest.fixture
def nats(monkeypatch: pytest.MonkeyPatch) -> PaperNats:
    paper = PaperNats()
    monkeypatch.setitem(sys.modules, "nats", paper)  # type: ignore[arg-type]
    return paper


def test_a_server_never_takes_a_subscriber_for_too_slow_and_says_its_port(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = NatsServer()
    ran: list[list[str]] = []
    ports = tmp_path / "nats" / "nats-server_7.ports"

    def run(argv: list[str], _log: Path) -> Any:
        ran.append(argv)
        return SimpleNamespace(pid=7)

    def wait(serves: Any) -> None:
        assert not serves(), "not written yet"
        ports.write_text("{")
        assert not serves(), "not whole yet"
        ports.write_text(json.dumps({"nats": ["nats://127.0.0.1:4711"]}))
        assert serves()

    monkeypatch.setattr(server, "_run", run)
    monkeypatch.setattr(server, "_await", wait)
    server.start(tmp_path)
    assert server.options(Case(size=8)) == {"url": "nats://127.0.0.1:4711"}
    told = Path(ran[0][-1]).read_text()
    assert f"max_pending: {1 << 30}\n" in told
    assert f'ports_file_dir: "{tmp_path / "nats"}"' in told
    assert 'listen: "127.0.0.1:-1"' in told


def test_every_message_is_sent_flushed_and_counted(nats: PaperNats) -> None:
    sends, takes = publisher("", OPTIONS), subscriber("", OPTIONS)
    takes.open(RUN)
    assert nats.flushed == [0], "the server knows of the subscription"
    sends.open(RUN)
    payloads = payloads_of(RUN)
    sends.publish(RUN, payloads)
    takes.receive(RUN)
    assert nats.published == [("bench.1", each) for each in (payloads * 4)[:10]]
    assert nats.flushed[-1] == 10
    assert set(nats.limits.values()) == {-1}, "nothing is dropped by the client"
    sends.close()
    takes.close()
    assert nats.closed == 2


def test_messages_of_another_size_are_no_measurement(nats: PaperNats) -> None:
    takes, sends = subscriber("", OPTIONS), publisher("", OPTIONS)
    takes.open(RUN)
    sends.open(RUN)
    sends.publish(RUN, [bytes(7)])
    with pytest.raises(AssertionError):
        takes.receive(RUN)


def test_at_a_rate_each_message_has_an_age(nats: PaperNats) -> None:
    takes, sends = subscriber("", OPTIONS), publisher("", OPTIONS)
    takes.open(PACED)
    sends.open(PACED)
    sends.pace(PACED)
    ages = takes.ages(PACED)
    assert len(ages) == len(nats.published) == PACED.count
    assert all(0.0 < each < 60e6 for each in ages)
    assert nats.flushed[-1] == PACED.count


def test_what_is_missing_is_named_the_server_first(monkeypatch: pytest.MonkeyPatch) -> None:
    there: dict[str, object] = {}
    monkeypatch.setattr(nats_core.shutil, "which", there.get)
    monkeypatch.setattr(nats_core.importlib.util, "find_spec", there.get)
    (contender,) = nats_core.contenders()
    assert "apt-get install nats-server" in str(contender.missing())
    there["nats-server"] = "/usr/bin/nats-server"
    assert "nats-py is not installed" in str(contender.missing())
    there["nats"] = object()
    assert contender.missing() is None
