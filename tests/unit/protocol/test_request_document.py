import bson
import pytest

from roq.protocol import documents
from roq.protocol.control import Failure, HcmRequest, Inventory, StopQueue
from roq.protocol.request_document import read_request
from roq.protocol.version import WIRE_VERSION


def test_a_request_is_read_by_its_command() -> None:
    request = StopQueue(id=7, queue="orders", leader_epoch=3)
    assert read_request(documents.encode(request), HcmRequest) == request


@pytest.mark.parametrize(
    ("data", "request_id"),
    [
        (b"", 0),
        (b"garbage", 0),
        (bson.encode({"CMD": 3102, "id": 9, "wire": WIRE_VERSION}), 9),
        (bson.encode({"CMD": 1, "id": 9.0, "wire": WIRE_VERSION}), 9),
        (bson.encode({"CMD": 3102, "id": True, "wire": WIRE_VERSION}), 0),
        (bson.encode({"CMD": 3102, "id": -4, "wire": WIRE_VERSION}), 0),
        (bson.encode({"id": "text", "wire": WIRE_VERSION}), 0),
        (documents.encode(Inventory(id=5))[:-3], 0),
    ],
)
def test_what_cannot_be_read_becomes_an_answer_with_the_id_if_there_was_one(
    data, request_id
) -> None:
    answer = read_request(data, HcmRequest)
    assert isinstance(answer, Failure)
    assert (answer.id, answer.CODE) == (request_id, "invalid_request")
    assert answer.COMMENT


@pytest.mark.parametrize("said", [{}, {"wire": 1}, {"wire": WIRE_VERSION + 1}, {"wire": "two"}])
def test_another_version_is_refused_and_both_are_named(said) -> None:
    raw = documents.decode_raw(documents.encode(Inventory(id=5)))
    del raw["wire"]
    answer = read_request(documents.encode_raw({**raw, **said}), HcmRequest)
    assert isinstance(answer, Failure)
    assert (answer.id, answer.CODE) == (5, "version")
    theirs = said.get("wire", 1)
    assert f"version {theirs!r} " in answer.COMMENT
    assert f"version {WIRE_VERSION}:" in answer.COMMENT
