"""Batches do not leave though they should: each reason is provoked by a fault, and named."""

from __future__ import annotations

import threading

import pytest
from standings import seconds
from waiting import eventually
from watched import Scene

from roq.client.publish.publisher import Publisher
from roq.client.session.events import Cause, ClientState, StateChange
from roq.errors import DeliveryError, QueueNotFound, Unavailable

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.long]


def test_a_publisher_says_when_it_connects_and_when_it_is_closed(scene: Scene) -> None:
    publisher = scene.publisher()
    scene.told.wait(ClientState.CONNECTED)
    assert (publisher.state, publisher.trouble) == (ClientState.CONNECTED, "")
    publisher.close()
    assert scene.told.wait(ClientState.CLOSED, Cause.CLOSED) == (
        "the publisher of queue orders was closed"
    )
    assert publisher.state is ClientState.CLOSED


def test_an_exchange_that_does_not_acknowledge(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = scene.publisher()
    released = scene.exchanges[0].withhold()
    publisher.publish(b"x")
    reason = scene.told.wait(ClientState.WAITING, Cause.NOT_ACKNOWLEDGED)
    assert seconds(reason, "exchange x1 has acknowledged nothing for") >= 2.0
    with pytest.raises(Unavailable, match="exchange x1 has acknowledged nothing for"):
        publisher.flush(0.01)
    logged = "publisher of queue orders: exchange x1 has acknowledged nothing"
    eventually(lambda: logged in caplog.text)
    released.set()
    scene.told.wait(ClientState.CONNECTED)
    publisher.flush(30)


def test_no_exchange_no_monitor_and_no_manager(scene: Scene) -> None:
    publisher = scene.publisher(timeout=0.1)
    scene.exchanges[0].kill()
    scene.control.exchanges.clear()
    scene.told.wait(ClientState.RECONNECTING, Cause.NO_EXCHANGE)
    scene.told.wait(ClientState.WAITING, Cause.NO_EXCHANGE)
    publisher.publish(b"x")
    with pytest.raises(Unavailable, match="connection refused"):
        publisher.flush(0.01)
    scene.control.silence()
    reason = scene.told.wait(ClientState.WAITING, Cause.NO_MONITOR)
    assert "the monitor of queue orders" in reason
    scene.control.close()
    reason = scene.told.wait(ClientState.WAITING, Cause.NO_MANAGER)
    assert f"no configuration manager answers: {scene.control.address}: connection" in reason


def test_a_monitor_that_is_silent_while_data_flows(scene: Scene) -> None:
    publisher = scene.publisher()
    subscriber = scene.subscriber()
    scene.control.silence()
    eventually(lambda: "the monitor" in publisher.trouble and "the monitor" in subscriber.trouble)
    assert publisher.state is subscriber.state is ClientState.CONNECTED
    publisher.publish(b"x")
    publisher.flush(30)
    assert subscriber.receive(30) is not None


def test_a_queue_that_is_stopped_and_then_removed(scene: Scene) -> None:
    publisher = scene.publisher()
    scene.control.stop_queue()
    scene.control.close_monitor()
    scene.exchanges[0].kill()
    assert "is stopped" in scene.told.wait(ClientState.WAITING, Cause.QUEUE_STOPPED)
    scene.control.refusal = QueueNotFound("queue orders does not exist")
    assert "does not exist" in scene.told.wait(ClientState.CLOSED, Cause.QUEUE_REMOVED)
    with pytest.raises(QueueNotFound):
        publisher.publish(b"x")


def test_a_background_thread_that_does_not_run(scene: Scene) -> None:
    publisher = scene.publisher()
    subscriber = scene.subscriber()
    released, hung = threading.Event(), threading.Event()

    def hang() -> None:
        hung.set()
        released.wait(120)

    scene.engine.call_soon(hang)
    assert hung.wait(30)
    for client in (publisher, subscriber):
        eventually(lambda client=client: client.state is ClientState.WAITING)
        assert seconds(client.trouble, "background thread did not run for") >= 2.0
    released.set()
    scene.told.wait(ClientState.WAITING, Cause.STARVED)
    scene.told.wait(ClientState.CONNECTED)


def test_what_is_given_up_is_told_as_lost(scene: Scene) -> None:
    publisher = scene.publisher(delivery_timeout=0.3)
    released = scene.exchanges[0].freeze()
    publisher.publish_many([b"a", b"b"])

    def lost() -> list[StateChange]:
        return [each for each in scene.told.told if each.state is ClientState.LOST_DATA]

    eventually(lambda: sum(each.messages for each in lost()) == 2)
    assert "not acknowledged within 0.3 s" in lost()[0].reason
    with pytest.raises(DeliveryError):
        publisher.flush(0.01)
    released.set()


def test_a_callback_that_raises_or_hangs_disturbs_nobody(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    called, released = threading.Event(), threading.Event()

    def fail(_change: object) -> None:
        called.set()
        released.wait(120)
        raise ZeroDivisionError

    publisher = scene.publisher(on_state=fail)
    assert called.wait(30)
    for number in range(100):
        publisher.publish(b"%d" % number)
    publisher.flush(30)
    released.set()
    eventually(lambda: "ZeroDivisionError" in caplog.text)


def test_a_callback_may_ask_and_close_its_own_client(scene: Scene) -> None:
    asked: list[object] = []
    done = threading.Event()

    def ask(change: StateChange) -> None:
        if change.state is ClientState.LOST_DATA:
            asked.append(publishers[0].stats().acked_messages)
            publishers[0].abort()
            done.set()

    publishers: list[Publisher] = []
    publishers.append(scene.publisher(on_state=ask, delivery_timeout=0.2))
    released = scene.exchanges[0].freeze()
    publishers[0].publish(b"given up")
    assert done.wait(30)
    assert asked == [0]
    released.set()
