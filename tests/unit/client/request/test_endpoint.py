"""What requesters and services agree on."""

from __future__ import annotations

import json
from typing import Any, TypedDict

import msgspec
import pytest

import roq
from roq.client.request.endpoint import endpoint


class Order(msgspec.Struct):
    """An order."""

    number: int


class Other(msgspec.Struct):
    """It looks like an order."""

    number: int


class Item(TypedDict):
    """It is no class of which a value could be told to be."""

    name: str


@pytest.mark.parametrize("codec", ["msgpack", "json"])
@pytest.mark.parametrize(
    ("kind", "value", "arrives"),
    [(Item, {"name": "a"}, {"name": "a"}), (Any, {"x": [1]}, {"x": [1]}), (float, 5, 5.0),
     (float, True, 1.0), (int, True, 1)],
)  # fmt: skip
def test_what_type_checkers_let_pass_arrives(
    codec: str, kind: Any, value: Any, arrives: Any
) -> None:
    made = endpoint("s.e", request=kind, response=kind, codec=codec)
    arrived = made.decode_response(made.encode_response(made.decode_request(
        made.encode_request(value)
    )))  # fmt: skip
    assert (arrived, type(arrived)) == (arrives, type(arrives))


def test_values_arrive_as_what_they_were() -> None:
    create = endpoint("billing.create", request=Order, response=list[int], idempotent=True)
    assert (create.service, create.topic, create.idempotent) == ("billing", "billing/create", True)
    assert create.decode_request(create.encode_request(Order(7))) == Order(7)
    assert create.decode_response(create.encode_response([1])) == [1]
    assert repr(create) == "<roq.Endpoint billing.create>"


@pytest.mark.parametrize("codec", ["msgpack", "json"])
def test_the_service_is_what_stands_before_the_last_dot(codec: str) -> None:
    made = endpoint("eu.billing.create", request=bytes, response=Order, codec=codec)
    assert (made.service, made.topic) == ("eu.billing", "eu.billing/create")
    assert made.encode_request(bytearray(b"x")) == b"x"
    assert made.decode_response(made.encode_response(Order(1))) == Order(1)


def test_nothing_is_no_bytes() -> None:
    made = endpoint("s.e", request=type(None), response=type(None))
    assert made.encode_request(None) == b""
    assert made.decode_request(b"") is None
    with pytest.raises(roq.InvalidRequest, match="NoneType"):
        made.decode_response(b"x")


def test_a_codec_of_ones_own() -> None:
    class Upper:
        def encode(self, value: Any) -> bytes:
            return str(value).upper().encode()

        def decode(self, data: bytes, kind: Any) -> Any:
            return kind(data.decode())

    made = endpoint("s.e", request=str, response=str, codec=Upper())
    assert made.decode_request(made.encode_request("a")) == "A"
    half = endpoint("s.e", request=bytes, response=str, codec=Upper())
    assert (half.encode_request(b"a"), half.encode_response("a")) == (b"a", b"A")
    for response in (bytes, type(None)):
        with pytest.raises(roq.InvalidRequest, match="would never be called"):
            endpoint("s.e", request=bytes, response=response, codec=Upper())


@pytest.mark.parametrize("name", ["billing", ".create", "billing.", "a/b.c", "", "x" * 129 + ".y"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(roq.InvalidName):
        endpoint(name, request=bytes, response=bytes)


def test_codecs_and_types_that_cannot_be() -> None:
    with pytest.raises(roq.InvalidRequest, match="use msgpack or json"):
        endpoint("s.e", request=int, response=int, codec="pickle")
    with pytest.raises(roq.InvalidRequest, match="no `encode`"):
        endpoint("s.e", request=int, response=int, codec=json)  # type: ignore[arg-type]
    with pytest.raises(roq.InvalidRequest, match="cannot be encoded"):
        endpoint("s.e", request=Order | Other, response=int)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["x", None, 1.5])
def test_values_of_another_type_are_refused_where_they_are_made(value: Any) -> None:
    with pytest.raises(roq.InvalidRequest, match="cannot be encoded"):
        endpoint("s.e", request=Order, response=int).encode_request(value)
    with pytest.raises(roq.InvalidRequest, match="not bytes"):
        endpoint("s.e", request=bytes, response=int).encode_request(value)
    with pytest.raises(roq.InvalidRequest, match="not None"):
        endpoint("s.e", request=type(None), response=int).encode_request(value or 1)  # type: ignore[arg-type]


def test_a_response_of_another_type_is_named() -> None:
    with pytest.raises(roq.InvalidRequest, match=r"the response of s\.e is no Order: "):
        endpoint("s.e", request=int, response=Order).decode_response(b"\x01")
