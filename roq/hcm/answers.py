"""Answers to those whose wish did not come true."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from roq.hcm.children import Waiter
from roq.hcm.events import Effect, Reply
from roq.protocol.control import FAILED, Failure

LAST_LINE_MAX: Final = 300


def failure(request_id: int, text: str, code: str) -> Failure:
    """One refusal."""
    return Failure(id=request_id, RESULT=FAILED, COMMENT=text, CODE=code)


def failures(waiters: Iterable[Waiter], text: str, code: str) -> list[Effect]:
    """The same refusal for all who waited."""
    return [Reply(each.peer, failure(each.request_id, text, code)) for each in waiters]


def ending(status: str, last_line: str) -> str:
    """How a process ended, with the last line of its log if there is one."""
    return f"{status}; its log ends with: {last_line[:LAST_LINE_MAX]}" if last_line else status
