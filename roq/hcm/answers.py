"""Answers to children, and to those whose wish did not come true."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from roq.hcm.children import Child, Waiter
from roq.hcm.events import Effect, Reply
from roq.hcm.leader import Leader
from roq.protocol.control import FAILED, ChildAck, Failure

LAST_LINE_MAX: Final = 300


def keep(child: Child, leader: Leader, request_id: int = 0) -> ChildAck:
    """Go on. An exchange hears where its monitor is, a monitor where the leading manager is."""
    if child.role == "monitor":
        return ChildAck(id=request_id, leader=leader.leading, child=child.name)
    return ChildAck(id=request_id, monitor=child.monitor)


def failure(request_id: int, text: str, code: str) -> Failure:
    """One refusal."""
    return Failure(id=request_id, RESULT=FAILED, COMMENT=text, CODE=code)


def failures(waiters: Iterable[Waiter], text: str, code: str) -> list[Effect]:
    """The same refusal for all who waited."""
    return [Reply(each.peer, failure(each.request_id, text, code)) for each in waiters]


def ending(status: str, last_line: str) -> str:
    """How a process ended, with the last line of its log if there is one."""
    return f"{status}; its log ends with: {last_line[:LAST_LINE_MAX]}" if last_line else status
