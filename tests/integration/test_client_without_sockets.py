"""A client that gets no connection for a while: it says so, and what it has goes on."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest
from waiting import eventually
from watched import Scene

from roq.client.session.events import Cause, ClientState
from roq.runtime import zmtp_client

pytestmark = [pytest.mark.integration, pytest.mark.faults]


class Descriptors:
    """Those of the connections to exchanges."""

    left = True

    def take(self, family: int) -> socket.socket:
        if not self.left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return socket.socket(family, socket.SOCK_STREAM)


@pytest.fixture
def descriptors(monkeypatch: pytest.MonkeyPatch) -> Descriptors:
    descriptors = Descriptors()
    monkeypatch.setattr(zmtp_client, "new_socket", descriptors.take)
    return descriptors


@pytest.fixture
def scene(descriptors: Descriptors) -> Iterator[Scene]:
    scene = Scene()
    yield scene
    descriptors.left = True
    scene.close()


def test_an_exchange_that_no_descriptor_is_left_for_is_named_and_read_as_soon_as_there_is_one(
    scene: Scene, descriptors: Descriptors
) -> None:
    publisher = scene.publisher(on_state=None)
    subscriber = scene.subscriber()
    descriptors.left = False
    scene.serve(1, 2)
    eventually(lambda: "Too many open files" in subscriber.trouble, what=scene.told)
    scene.told.wait(ClientState.WAITING, Cause.SILENT_EXCHANGE)
    publisher.publish(b"by x1")
    message = subscriber.receive(30)
    assert message is not None
    assert message.payload == b"by x1"
    descriptors.left = True
    scene.told.wait(ClientState.CONNECTED)
    scene.control.relocate(publisher.id, scene.info(2))
    eventually(lambda: publisher.stats().exchange == "x2")
    publisher.publish(b"by x2")
    message = subscriber.receive(30)
    assert message is not None
    assert message.payload == b"by x2"
    assert subscriber.stats().counts.lost == 0


def test_a_start_that_gets_no_descriptor_says_so_and_another_one_succeeds(
    scene: Scene, descriptors: Descriptors
) -> None:
    publisher = scene.publisher(on_state=None)
    descriptors.left = False
    with pytest.raises(Exception, match="Too many open files"):
        scene.subscriber(timeout=3.0)
    descriptors.left = True
    eventually(lambda: publisher.state is ClientState.CONNECTED)
    subscriber = scene.subscriber(timeout=30.0)
    publisher.publish(b"x")
    assert subscriber.receive(30) is not None
