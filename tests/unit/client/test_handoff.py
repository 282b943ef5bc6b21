from roq.client.handoff import Handoff
from roq.client.message import Batch, Gap
from roq.errors import Closed
from roq.model import PublisherId


def batch(size: int = 10) -> Batch:
    return Batch([b"x"], "t", PublisherId(b"p" * 16), 0, 0, size)


def test_bursts_come_out_as_they_went_in() -> None:
    handoff = Handoff(lambda: None)
    assert handoff.put([batch(), batch()])
    taken = handoff.take(0)
    assert isinstance(taken, list)
    assert len(taken) == 2
    assert handoff.take(0) is None
    assert handoff.take(0.001) is None


def test_a_reader_that_falls_behind_holds_the_writer_back_and_then_lets_it_go_on() -> None:
    resumed: list[bool] = []
    handoff = Handoff(lambda: resumed.append(True), bytes_max=100)
    assert handoff.put([batch(60)])
    assert not handoff.put([batch(60)])
    handoff.take()
    assert not resumed
    handoff.take()
    assert resumed == [True]
    assert handoff.put([batch(60)])
    handoff.take()
    assert resumed == [True]


def test_many_small_batches_are_bounded_as_well() -> None:
    handoff = Handoff(lambda: None, batches_max=3)
    assert handoff.put([batch(0)] * 3)
    assert not handoff.put([batch(0)])


def test_reports_and_the_end_keep_their_place() -> None:
    ready: list[bool] = []
    handoff = Handoff(lambda: None)
    handoff.on_ready = lambda: ready.append(True)
    gap = Gap(topic="t", text="gone")
    error = Closed("over")
    handoff.put([batch()])
    handoff.put_gap(gap)
    handoff.end(error)
    assert isinstance(handoff.take(0), list)
    assert handoff.take(0) is gap
    assert handoff.take(0) is error
    assert len(ready) == 3


def test_reports_nobody_reads_are_bounded() -> None:
    handoff = Handoff(lambda: None)
    for _ in range(3_000):
        handoff.put_gap(Gap(topic="t", text="gone"))
    count = 0
    while handoff.take(0) is not None:
        count += 1
    assert count == 1_000
