"""The ids of requests, and what a handler knows of its request."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from roq.client.request.context import CURRENT, RequestContext, RequestId, is_lost, parse_id
from roq.errors import InvalidRequest
from roq.model import LogId
from roq.protocol.requesting import Position


def test_time_and_loss_cancel() -> None:
    now = 10.0
    held = SimpleNamespace(id="work/x1-1-0-0", headers={"a": "b"}, lost=False)
    context = RequestContext(held, "s.e", 2, 12.0, lambda: now)
    assert (context.remaining, context.cancelled, context.headers) == (2.0, False, {"a": "b"})
    held.lost = True
    assert context.cancelled
    assert is_lost(context)
    held.lost, now = False, 13.0
    assert not is_lost(context), "its time is over, and nobody has taken it"
    assert (context.remaining, context.cancelled) == (0.0, True)
    assert repr(context) == "<roq.RequestContext s.e work/x1-1-0-0, attempt 2>"
    assert CURRENT.get() is None


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
