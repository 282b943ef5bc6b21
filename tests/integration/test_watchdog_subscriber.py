"""Nothing comes though it should: each reason is provoked by a fault, and named."""

from __future__ import annotations

import pytest
from standings import seconds
from waiting import eventually
from watched import Scene

from roq.client.session.events import Cause, ClientState
from roq.errors import Unavailable

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.long]


def test_an_exchange_that_hangs(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    subscriber = scene.subscriber()
    released = scene.exchanges[0].freeze()
    reason = scene.told.wait(ClientState.WAITING, Cause.SILENT_EXCHANGE)
    assert seconds(reason, "exchange x1 has not been heard for") >= 2.0
    eventually(lambda: "does not answer" in subscriber.trouble)
    logged = "subscriber of queue orders: exchange x1 has not been heard"
    eventually(lambda: logged in caplog.text)
    released.set()
    scene.told.wait(ClientState.CONNECTED)


def test_a_fan_out_that_is_cut_off_while_the_log_can_be_read(scene: Scene) -> None:
    relay = scene.relay(scene.info(1).live)
    publisher = scene.publisher(on_state=None)
    subscriber = scene.subscriber()
    relay.cut()
    reason = scene.told.wait(ClientState.CONNECTED, Cause.SILENT_EXCHANGE)
    assert "its log is read instead" in reason
    publisher.publish(b"x")
    message = subscriber.receive(30)
    assert message is not None
    relay.mend()
    scene.told.wait(ClientState.CONNECTED)


def test_messages_that_wait_for_older_ones(scene: Scene) -> None:
    scene.serve(1, 2)
    publisher = scene.publisher(on_state=None)
    scene.drop_batches(1)
    data = scene.relay(scene.info(1).data)
    subscriber = scene.subscriber()
    data.cut()
    publisher.publish(b"older", topic="t")
    publisher.flush(30)
    scene.control.relocate(publisher.id, scene.info(2))
    eventually(lambda: publisher.stats().exchange == "x2")
    publisher.publish(b"newer", topic="t")
    reason = scene.told.wait(ClientState.WAITING, Cause.HOLE)
    assert "topic 't': 1 messages from sequence 0 are missing; not read to the end since" in reason
    assert "x1" in reason
    data.mend()
    received = [subscriber.receive(30) for _ in range(2)]
    assert [message.payload for message in received if message] == [b"older", b"newer"]
    scene.told.wait(ClientState.CONNECTED)


def test_an_application_that_takes_nothing(scene: Scene) -> None:
    publisher = scene.publisher(on_state=None)
    subscriber = scene.subscriber()
    publisher.publish(b"x")
    reason = scene.told.wait(ClientState.WAITING, Cause.NOT_TAKEN)
    assert seconds(reason, "the application has taken nothing for") >= 2.0
    assert subscriber.receive(30) is not None
    scene.told.wait(ClientState.CONNECTED)


def test_a_queue_that_has_lost_all_of_its_exchanges(scene: Scene) -> None:
    subscriber = scene.subscriber()
    scene.control.exchanges.clear()
    scene.control.tell_topology(subscriber.id)
    reason = scene.told.wait(ClientState.WAITING, Cause.NO_EXCHANGE)
    assert reason == "queue orders has no exchange at present"
    scene.serve(2)
    scene.control.tell_topology(subscriber.id)
    scene.told.wait(ClientState.CONNECTED)


def test_a_start_that_gets_no_answer_says_what_it_waits_for(scene: Scene) -> None:
    released = scene.exchanges[0].freeze()
    with pytest.raises(Unavailable, match="exchange x1"):
        scene.subscriber(timeout=3.0)
    released.set()
    scene.control.close()
    with pytest.raises(Unavailable, match="no configuration manager answers"):
        scene.subscriber(timeout=1.0)
