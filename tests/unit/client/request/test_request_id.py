"""The ids of requests."""

from __future__ import annotations

import pytest

from roq.client.request.request_id import RequestId, parse_id
from roq.errors import InvalidRequest
from roq.model import LogId
from roq.protocol.requesting import Position


def test_an_id_is_text_and_back() -> None:
    made = RequestId("work", LogId(3, 17), Position(42, 5))
    assert str(made) == "work/x3-17-42-5"
    assert parse_id(str(made)) == made


@pytest.mark.parametrize(
    "text",
    ["", "work", "x1-1-1-1", "work/x1-1-1", "work/x1-1-1-1-1", "work/y1-1-1-1", "a b/x1-1-1-1",
     "work/x1-1--1-0", "work/x1-1-9999999999999999999-0", "w" * 200 + "/x1-1-1-1", 7],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(InvalidRequest, match="no id of a request"):
        parse_id(text)
