"""Refusals."""

from __future__ import annotations

from typing import Final

from roq.errors import RequestError
from roq.protocol.control import FAILED, Failure

UNAVAILABLE: Final = "unavailable"
"""Code of what may come true when it is asked again."""


class Ending(RequestError):
    """This monitor ends; there may be another one."""

    code = UNAVAILABLE


def failure(request_id: int, text: str, code: str = UNAVAILABLE) -> Failure:
    """A request was refused, or could not be answered."""
    return Failure(id=request_id, RESULT=FAILED, COMMENT=text, CODE=code)
