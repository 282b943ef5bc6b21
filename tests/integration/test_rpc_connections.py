"""One connection to each configuration manager, whoever asks, and however it ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from fake_control import FakeControl

from roq.client.io.engine import Engine
from roq.errors import Unavailable
from roq.protocol.control import Answer, Located, LocateRequest
from roq.runtime.rpc_connections import NotReached

pytestmark = pytest.mark.integration


class Asking:
    """Asks from outside of the I/O thread, and waits for the answers."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.start()
        self.answers: list[Answer | Unavailable] = []
        self._come = threading.Semaphore(0)

    def ask(self, address: str, times: int = 1, timeout: float = 30.0) -> None:
        def answered(answer: Answer | Unavailable) -> None:
            self.answers.append(answer)
            self._come.release()

        def ask() -> None:
            for _ in range(times):
                request = LocateRequest(QName="orders")
                self.engine.managers.ask(address, request, timeout, answered)

        self.engine.run_sync(ask)

    def wait(self, times: int = 1) -> list[Answer | Unavailable]:
        for _ in range(times):
            assert self._come.acquire(timeout=60)
        answers, self.answers = self.answers, []
        return answers


@pytest.fixture
def asking() -> Iterator[Asking]:
    asking = Asking()
    yield asking
    asking.engine.close()


def test_many_who_ask_share_a_connection(asking: Asking) -> None:
    with FakeControl() as control:
        asking.ask(control.address, 100)
        answers = asking.wait(100)
        assert all(isinstance(answer, Located) for answer in answers)
        assert len(control.askers) == 1


def test_nobody_listens_and_each_who_asked_is_told_at_once(asking: Asking) -> None:
    with socket.socket() as nobody:  # has a port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        asking.ask(f"tcp://127.0.0.1:{port}", 3, timeout=60.0)
        for answer in asking.wait(3):
            assert isinstance(answer, NotReached)
            assert "connection refused" in str(answer)
    asking.ask("nonsense")
    assert isinstance(asking.wait()[0], NotReached)


def test_a_manager_that_answers_nothing_is_late_and_one_that_ends_is_not(asking: Asking) -> None:
    control = FakeControl()
    control.mute = True
    asking.ask(control.address, timeout=0.2)
    (answer,) = asking.wait()
    assert isinstance(answer, Unavailable)
    assert not isinstance(answer, NotReached)
    asking.ask(control.address, timeout=60.0)
    control.close()
    (answer,) = asking.wait()
    assert isinstance(answer, NotReached)


def test_a_manager_that_comes_back_is_asked_over_a_new_connection(asking: Asking) -> None:
    control = FakeControl()
    asking.ask(control.address)
    assert isinstance(asking.wait()[0], Located)
    control.close()
    asking.ask(control.address)
    assert isinstance(asking.wait()[0], Unavailable)
    with FakeControl() as other:
        asking.ask(other.address)
        assert isinstance(asking.wait()[0], Located)
