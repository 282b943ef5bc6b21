"""What a process does that runs handlers: here a thread of the test's is its main one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import process_program
import pytest
from msgspec.structs import replace

import roq.aio
from roq.errors import ConfigError
from roq.jobs.child import ChildRunner, found
from roq.jobs.child_messages import (
    BeginRun,
    ChildOrder,
    ChildReady,
    ChildReport,
    EndSaid,
    PlaceSaid,
    StopRun,
)
from roq.jobs.jobs import Jobs
from roq.jobs.rows import Body, Claimed
from roq.jobs.states import Attempts, RunEnd
from roq.jobs.types import Unreadable

MODULE = "process_program"
RUN = Claimed(
    id=1, token=2, type="Stops", priority=100, created=5, sequence=0, attempts=Attempts(),
    restartable=True, items=0, saved=0,
)  # fmt: skip
SECONDS = 30.0


class Instance:
    """The instance's end."""

    def __init__(self) -> None:
        mine, its = socket.socketpair()
        self.connection = Connection(mine.detach())
        self.gone = threading.Event()
        self.runner = ChildRunner(Connection(its.detach()), self.gone.set)
        self.thread = threading.Thread(target=self.runner.run, daemon=True)
        self.thread.start()
        assert self.hear() == ChildReady()

    def tell(self, order: ChildOrder) -> None:
        self.connection.send_bytes(msgspec.msgpack.encode(order))

    def hear(self) -> ChildReport:
        assert self.connection.poll(SECONDS)
        return msgspec.msgpack.decode(self.connection.recv_bytes(), type=ChildReport)

    def begin(self, name: str, run: Claimed) -> None:
        self.tell(BeginRun(MODULE, name, 1, "test", run))


@pytest.fixture
def instance() -> Iterator[Instance]:
    made = Instance()
    yield made
    made.connection.close()
    made.thread.join(SECONDS)
    assert made.gone.is_set()


def test_a_run_says_how_far_it_is_and_stops(instance: Instance, tmp_path: Path) -> None:
    params = Body("json", 1, msgspec.json.encode(str(tmp_path / "out")))
    instance.begin("stops", replace(RUN, params=params))
    assert instance.hear() == PlaceSaid((1, 2), 7)
    instance.tell(StopRun(RunEnd.LIMIT))
    end = instance.hear()
    assert isinstance(end, EndSaid)
    assert (end.run, end.end, end.saved) == ((1, 2), RunEnd.LIMIT, 8)
    # An order to stop is for one run.
    instance.begin("stops", replace(RUN, id=3, saved=8, params=params))
    end = instance.hear()
    assert isinstance(end, EndSaid)
    assert (end.run, end.end, end.result) == ((3, 2), RunEnd.DONE, Body("json", 1, b"8"))


def test_params_that_cannot_be_read_and_handlers_that_are_not_there(instance: Instance) -> None:
    for name, text in (("stops", "params"), ("nope", "no handler"), ("where", "of type Stops")):
        instance.begin(name, RUN)
        end = instance.hear()
        assert isinstance(end, EndSaid)
        assert end.trouble is not None
        assert (end.end, text in end.trouble.text) == (RunEnd.REFUSED, True)


def test_rubbish_ends_it() -> None:
    instance = Instance()
    instance.connection.send_bytes(b"rubbish")
    assert instance.gone.wait(SECONDS)
    instance.connection.close()


def test_a_module_may_raise_anything() -> None:
    for module in ("no.such.module", "", "process_program\0"):
        with pytest.raises(Unreadable):
            found(module, "stops", "Stops")


def test_a_type_of_the_asyncio_client_is_found_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = roq.aio.Jobs("never.db")
    kind = jobs.type("Other")(process_program.stops.handler)
    monkeypatch.setattr(process_program, "other", kind, raising=False)
    assert found("process_program", "other", "Other") == (kind.sync, jobs.sync)


def test_no_instance_runs_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "may_work", False)
    with pytest.raises(ConfigError, match="__main__"):
        process_program.jobs.worker()
