"""The configuration broadcast: exactly what existing readers expect."""

import bson
import pytest

from roq.errors import RemoteProtocolError
from roq.protocol import broadcast
from roq.protocol.broadcast import Configuration, QueueStatus


def test_three_frames_with_the_known_names() -> None:
    configuration = Configuration(
        version=3, queues=(QueueStatus("orders", "h1", State=True),), hosts=("h1", "h2")
    )
    frames = broadcast.encode(configuration)
    assert [bson.decode(frame) for frame in frames] == [
        {"CMD": 1500, "CMD_ID": 1500, "Version": 3},
        {"Queues": [{"Name": "orders", "Host": "h1", "State": True}]},
        {"Hosts": ["h1", "h2"], "hosts": ["h1", "h2"]},
    ]
    assert broadcast.decode(frames) == configuration


def test_empty_lists_are_not_missing() -> None:
    frames = broadcast.encode(Configuration(version=1))
    assert bson.decode(frames[1]) == {"Queues": []}
    assert bson.decode(frames[2]) == {"Hosts": [], "hosts": []}


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"", b"", b""],
        broadcast.encode(Configuration(version=1))[:2],
        [bson.encode({"CMD": 20}), bson.encode({"Queues": []}), bson.encode({"Hosts": []})],
        [bson.encode({"CMD": 1500}), bson.encode({}), bson.encode({"Hosts": []})],
        [bson.encode({"CMD": 1500}), bson.encode({"Queues": [1]}), bson.encode({"Hosts": []})],
    ],
)
def test_anything_else_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError):
        broadcast.decode(frames)
