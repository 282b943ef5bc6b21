import contextlib
import math

import bson
import msgspec
import pytest
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from roq.errors import RemoteProtocolError
from roq.model import Limits
from roq.protocol import documents
from roq.protocol.control import Answer, Failure, Located, Topology


class Order(msgspec.Struct, frozen=True):
    CMD: int
    name: str = ""


@pytest.mark.parametrize("number", [5, Int64(5), 5.0])
def test_every_bson_number_that_is_integral_is_an_integer(number: float) -> None:
    data = bson.encode({"CMD": number})
    assert documents.decode(data, Order) == Order(5)
    assert type(documents.decode_raw(data)["CMD"]) is int


@pytest.mark.parametrize("value", [5.5, math.nan, math.inf, "5", True, None])
def test_anything_else_is_no_integer_and_the_field_is_named(value: object) -> None:
    with pytest.raises(RemoteProtocolError, match="CMD"):
        documents.decode(bson.encode({"CMD": value}), Order)


def test_a_queue_without_an_id_is_not_found_anywhere() -> None:
    located = Located(
        QName="orders", queue_id=b"", monitor="tcp://m:1", statistics="", limits=Limits()
    )
    with pytest.raises(RemoteProtocolError, match="queue_id"):
        documents.decode(documents.encode(located), Located)


def test_unknown_fields_are_ignored() -> None:
    data = bson.encode({"CMD": 1, "name": "n", "newer": {"x": [1, 2]}})
    assert documents.decode(data, Order) == Order(1, "n")


@given(st.binary(max_size=100))
def test_garbage_raises_a_protocol_error_and_nothing_else(garbage: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        documents.decode_raw(garbage)


def test_a_truncated_document_is_refused() -> None:
    data = bson.encode({"CMD": 1, "name": "abc"})
    for size in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            documents.decode(data[:size], Order)


def test_deep_nesting_is_refused() -> None:
    document: dict[str, object] = {}
    for _ in range(documents.DEPTH_MAX + 2):
        document = {"a": document}
    with pytest.raises(RemoteProtocolError, match="nested"):
        documents.decode_raw(bson.encode(document))


@pytest.mark.parametrize("kind", [b"\x03", b"\x04"])  # documents, arrays
def test_nesting_as_deep_as_a_sender_likes_is_refused(kind: bytes) -> None:
    deep = 100_000
    sizes = range(5 + 8 * deep, 5, -8)  # of each level: length, kind, name, what is in it, end
    heads = b"".join(size.to_bytes(4, "little") + kind + b"0\0" for size in sizes)
    innermost = bson.encode({})
    with pytest.raises(RemoteProtocolError, match="not a BSON document"):
        documents.decode_raw(heads + innermost + bytes(deep))


def test_an_over_long_document_is_refused_before_it_is_read() -> None:
    with pytest.raises(RemoteProtocolError, match="above"):
        documents.decode_raw(bytes(documents.DOCUMENT_BYTES_MAX + 1))


def test_a_union_is_told_apart_by_its_command() -> None:
    topology = Topology(id=3, queue_id=b"q" * 16, epoch=1, version=2, exchanges=[])
    failure = Failure(id=4, RESULT=1101, COMMENT="no")
    for message in (topology, failure):
        assert documents.decode(documents.encode(message), Answer) == message


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"CMD": 3999, "id": 1, "RESULT": 1}, "Object missing required field `COMMENT`"),
        ({"CMD": 3998, "id": "$.document"}, "Expected `int`, got `str` - at `$.id`"),
        ({"CMD": 1, "id": 1}, "Invalid value 1 - at `$.CMD`"),
    ],
)
def test_what_is_wrong_in_a_union_is_named_from_the_top_of_the_document(
    document: documents.RawDocument, words: str
) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        documents.convert(document, Answer)
    assert str(raised.value) == words


def test_msgspec_takes_no_union_to_pieces_for_each_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    convert, kinds = msgspec.convert, list[object]()

    def noted(raw: object, kind: object) -> object:
        kinds.append(kind)
        return convert(raw, kind)

    monkeypatch.setattr(msgspec, "convert", noted)
    for number in (4, 5):
        message = Failure(id=number, RESULT=1101, COMMENT="no")
        assert documents.decode(documents.encode(message), Answer) == message
    assert isinstance(kinds[0], type)
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize("scope", [None, {"a": 1}])
def test_javascript_code_in_a_document_is_text_and_upsets_nobody(
    scope: dict[str, object] | None,
) -> None:
    data = bson.encode({"CMD": 5, "name": bson.Code("x", scope), "more": {"c": bson.Code("y")}})
    assert documents.decode(data, Order) == Order(5, "x")
    assert type(documents.decode_raw(data)["name"]) is str


def test_binary_of_any_subtype_is_bytes() -> None:
    decoded = documents.decode_raw(bson.encode({"b": bson.Binary(b"x" * 16, 5)}))
    assert decoded == {"b": b"x" * 16}
