"""The client's one background thread."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings

import pytest

from roq.client.admin.broadcast import Watch
from roq.client.admin.management import Management
from roq.client.admin.statistics import Statistics
from roq.client.io.engine import Engine
from roq.errors import Closed, Reentered, RoQError, Unavailable


def test_work_is_done_in_its_thread_and_brings_the_result(engine: Engine) -> None:
    assert engine.run_sync(lambda: engine.inside)
    assert not engine.inside
    assert engine.run_sync(lambda: engine.run_sync(lambda: 7)) == 7


def test_who_stands_in_the_place_of_the_thread_is_not_made_to_wait_for_it(engine: Engine) -> None:
    told: list[RoQError] = []

    def run() -> None:
        try:
            engine.run_sync(lambda: None, timeout=5)
        except RoQError as error:
            told.append(error)
        engine.close()

    def work() -> None:
        while not told:
            engine.reactor.call_here(run) if not engine.reactor._turn.locked() else None

    began, thread = time.monotonic(), threading.Thread(target=work)
    thread.start()
    thread.join(20)
    [error] = told
    assert isinstance(error, Reentered)
    assert time.monotonic() - began < 4
    engine._thread.join(20)
    engine.reactor.close()  # as who stands there, it could not
    engine.context.destroy(linger=0)


def test_an_error_is_raised_where_the_work_was_asked_for(engine: Engine) -> None:
    def fail() -> None:
        raise KeyError("k")

    with pytest.raises(KeyError):
        engine.run_sync(fail)
    assert engine.run_sync(lambda: 1) == 1


def test_work_that_does_not_get_its_turn_is_taken_back(engine: Engine) -> None:
    hold, ran = threading.Event(), threading.Event()
    engine.call_soon(lambda: hold.wait(10) and None)
    with pytest.raises(Unavailable):
        engine.run_sync(ran.set, timeout=0.01)
    hold.set()
    engine.run_sync(lambda: None)
    assert not ran.is_set()


def test_closing_is_idempotent_and_refuses_work_afterwards(engine: Engine) -> None:
    ends: list[int] = []
    engine.at_end(lambda: ends.append(1))
    engine.close()
    engine.close()
    assert ends == [1]
    engine.at_end(lambda: ends.append(2))
    assert ends == [1, 2]
    with pytest.raises(Closed, match="closed"):
        engine.run_sync(lambda: None)


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_thread_that_dies_says_why_to_everybody(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    engine = Engine()
    engine.start()
    ended = threading.Event()
    engine.at_end(ended.set)

    def crash() -> None:
        raise error

    engine.reactor.call_soon(crash)
    assert ended.wait(10)
    with pytest.raises(Closed, match=error.__name__):
        engine.call_soon(lambda: None)
    assert "background thread ended" in caplog.text
    engine.close()


def test_a_forked_process_is_told_to_open_its_own(engine: Engine) -> None:
    management = Management(engine, ["tcp://127.0.0.1:1"])
    watch, statistics = Watch(engine, management), Statistics(engine, management, "q")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of forks
        child = os.fork()
    if child == 0:
        refused = 1
        with contextlib.suppress(BaseException):
            with pytest.raises(Closed, match="fork"):
                engine.check()
            for waiting in (watch, statistics):
                with pytest.raises(Closed, match="fork"):
                    waiting.receive(timeout=0.1)
            refused = 0
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    engine.check()
    watch.close()
    statistics.close()


def test_an_engine_that_was_never_started_closes() -> None:
    Engine().close()
