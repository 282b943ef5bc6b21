"""What counts as a sign of life, and of whom."""

import msgspec
import pytest
from gcm_script import PaperHost, Script

from roq.errors import StaleEpoch
from roq.gcm.state.heartbeats import Heartbeats
from roq.gcm.state.queues import MONITOR, Queue
from roq.protocol.control import ElasticityRequest
from roq.timing import PROOF_SECONDS


class Heard:
    """The proofs of one queue with one exchange, on a host that says nothing itself."""

    def __init__(self) -> None:
        script = Script(PaperHost("h1"))
        script.ask(2003, QName="q", Host="h1")
        self.hosts = script.machine.hosts
        self.queue = self.found(script)
        self.heartbeats = Heartbeats(self.hosts)
        self.now = script.now

    @staticmethod
    def found(script: Script) -> Queue:
        queue = script.machine.queues.get("q")
        assert queue is not None
        return queue

    def take(self, monitor: int, exchange: int, *, idle: bool = False) -> None:
        """The monitor tells its epoch, and that of the exchange that it hears."""
        request = ElasticityRequest(
            queue="q", queue_id=self.queue.record.queue_id, epoch=monitor, idle=idle,
            exchanges=[(1, exchange)],
        )  # fmt: skip
        self.heartbeats.take(self.queue, request, self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.hosts.now = self.now

    @property
    def lives(self) -> tuple[bool, bool]:
        """Whether the monitor lives, and whether the exchange does."""
        return self.heartbeats.lives(self.queue, MONITOR), self.heartbeats.lives(self.queue, 1)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_nobody_lives_of_whom_nothing_was_heard(heard: Heard) -> None:
    assert heard.lives == (False, False)


def test_a_proof_counts_for_three_seconds(heard: Heard) -> None:
    heard.take(heard.queue.epoch(MONITOR), heard.queue.epoch(1))
    heard.pass_time(PROOF_SECONDS - 0.1)
    assert heard.lives == (True, True)
    heard.pass_time(0.2)
    assert heard.lives == (False, False)


def test_a_proof_of_an_idle_queue_counts_for_six_seconds(heard: Heard) -> None:
    epochs = (heard.queue.epoch(MONITOR), heard.queue.epoch(1))
    heard.take(*epochs, idle=True)
    heard.pass_time(2 * PROOF_SECONDS - 0.1)
    assert heard.lives == (True, True)
    assert not heard.heartbeats.settled(heard.queue)
    heard.pass_time(0.2)
    assert heard.lives == (False, False)
    heard.take(*epochs)
    heard.pass_time(PROOF_SECONDS + 0.1)
    assert heard.lives == (False, False)


def test_an_earlier_process_of_an_exchange_proves_nothing_of_the_present_one(heard: Heard) -> None:
    heard.take(heard.queue.epoch(MONITOR), heard.queue.epoch(1) - 1)
    assert heard.lives == (True, False)


def test_a_monitor_that_was_heard_before_another_took_its_place_proves_nothing(
    heard: Heard,
) -> None:
    heard.take(heard.queue.epoch(MONITOR), heard.queue.epoch(1))
    record = heard.queue.record
    heard.queue.record = msgspec.structs.replace(record, epoch=heard.queue.epoch(MONITOR) + 1)
    assert heard.lives == (False, True)
    with pytest.raises(StaleEpoch):
        heard.take(heard.queue.epoch(MONITOR) - 1, heard.queue.epoch(1))


def test_an_exchange_that_the_queue_does_not_have_is_not_remembered(heard: Heard) -> None:
    queue = heard.queue
    heard.take(queue.epoch(MONITOR), queue.epoch(1))
    queue.record = msgspec.structs.replace(queue.record, exchanges=())
    heard.take(queue.epoch(MONITOR), queue.epoch(MONITOR))
    assert heard.lives == (True, False)


def test_a_new_monitor_has_to_listen_before_its_silence_says_anything(heard: Heard) -> None:
    epoch = heard.queue.epoch(MONITOR)
    heard.take(epoch, heard.queue.epoch(1))
    heard.pass_time(PROOF_SECONDS - 0.1)
    heard.take(epoch, heard.queue.epoch(1))
    assert not heard.heartbeats.settled(heard.queue)
    heard.pass_time(0.2)
    assert heard.heartbeats.settled(heard.queue)
    heard.take(epoch + 1, heard.queue.epoch(1))
    assert not heard.heartbeats.settled(heard.queue)


def test_proofs_of_queues_that_are_gone_are_forgotten(heard: Heard) -> None:
    heard.take(heard.queue.epoch(MONITOR), heard.queue.epoch(1))
    heard.heartbeats.keep(frozenset({heard.queue.record.queue_id}))
    assert heard.lives == (True, True)
    heard.heartbeats.keep(frozenset())
    assert heard.lives == (False, False)
