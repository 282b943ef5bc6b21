"""What a handler knows of its request."""

from __future__ import annotations

from roq.client.request.context import CURRENT, RequestContext


def test_time_and_loss_cancel() -> None:
    now, gone = 10.0, False
    context = RequestContext(
        "work/x1-1-0-0", "s.e", 2, 12.0, lambda: now, lambda: {"a": "b"}, lambda: gone
    )
    assert (context.remaining, context.cancelled, context.headers) == (2.0, False, {"a": "b"})
    gone = True
    assert context.cancelled
    gone, now = False, 13.0
    assert (context.remaining, context.cancelled) == (0.0, True)
    assert repr(context) == "<roq.RequestContext s.e work/x1-1-0-0, attempt 2>"
    assert CURRENT.get() is None
