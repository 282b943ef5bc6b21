"""A client that gets no socket for a while: it says so, and what it has goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq
from few_sockets import take_all
from waiting import eventually
from watched import Scene

from roq.client.io import engine as engine_module
from roq.client.state import Cause, ClientState

pytestmark = [pytest.mark.integration, pytest.mark.faults]

SOCKETS = 60
PUBLISHER = 2
SUBSCRIBER = 1 + 2 * 4
"""Of two exchanges, once all connections stand."""


def take_all_but(scene: Scene, used: int) -> list[zmq.Socket[bytes]]:
    """All sockets but those in use, also the ones that are given back when a connection stands."""
    taken: list[zmq.Socket[bytes]] = []

    def all_taken() -> bool:
        taken.extend(take_all(scene.engine.context))
        return len(taken) >= SOCKETS - used

    eventually(all_taken, what=taken)
    return taken


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    def small() -> zmq.Context[zmq.Socket[bytes]]:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        context.set(zmq.MAX_SOCKETS, SOCKETS)
        return context

    monkeypatch.setattr(engine_module, "new_context", small)
    scene = Scene()
    yield scene
    scene.close()


def test_an_exchange_that_no_socket_is_left_for_is_named_and_read_as_soon_as_there_is_one(
    scene: Scene,
) -> None:
    publisher = scene.publisher(on_state=None)
    subscriber = scene.subscriber()
    # On a slow machine connections are given back meanwhile, and the session with the monitor needs
    # them again; so there are more exchanges than they suffice for.
    taken = take_all_but(scene, PUBLISHER + SUBSCRIBER)
    for number in (3, 4):
        scene.add(number)
    scene.serve(1, 2, 3, 4)
    eventually(lambda: "Too many open files" in subscriber.trouble, what=scene.told)
    scene.told.wait(ClientState.WAITING, Cause.SILENT_EXCHANGE)
    publisher.publish(b"by x1")
    message = subscriber.receive(30)
    assert message is not None
    assert message.payload == b"by x1"
    for socket in taken:
        socket.close(0)
    scene.told.wait(ClientState.CONNECTED)
    scene.control.relocate(publisher.id, scene.info(2))
    eventually(lambda: publisher.stats().exchange == "x2")
    publisher.publish(b"by x2")
    message = subscriber.receive(30)
    assert message is not None
    assert message.payload == b"by x2"
    assert subscriber.stats().counts.lost == 0


def test_a_start_that_gets_no_socket_says_so_and_another_one_succeeds(scene: Scene) -> None:
    publisher = scene.publisher(on_state=None)
    taken = take_all_but(scene, PUBLISHER)
    for _ in range(3):  # a connection to the configuration manager, and one to the monitor
        taken.pop().close(0)
    with pytest.raises(Exception, match="Too many open files"):
        scene.subscriber(timeout=3.0)
    for socket in taken:
        socket.close(0)
    eventually(lambda: publisher.state is ClientState.CONNECTED)
    subscriber = scene.subscriber(timeout=30.0)
    publisher.publish(b"x")
    assert subscriber.receive(30) is not None
