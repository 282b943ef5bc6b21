"""The documents of management commands."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from roq.model import Limits, check_name
from roq.protocol.documents import RawDocument


def request(command: int, **fields: object) -> RawDocument:
    """A management command."""
    return {"CMD": command, **fields}


def create_request(
    name: str, host: str | None, durability: str, limits: Limits | Mapping[str, int] | None
) -> RawDocument:
    """Command 2010, or 2003 if a host is named."""
    # The same request repeated to a later leader finds what it has made.
    transaction = os.urandom(16).hex()
    fields: RawDocument = {
        "QName": check_name(name),
        "Durability": durability,
        "TransactionID": transaction,
    }
    given = changed_limits(limits)
    if given:
        fields["Limits"] = given
    if host is None:
        return request(2010, **fields)
    return request(2003, Host=host, **fields)


def exchange_request(queue: str, host: str | None, transaction_id: str | None) -> RawDocument:
    """Command 2004."""
    transaction = transaction_id if transaction_id is not None else os.urandom(16).hex()
    fields = {"QName": check_name(queue), "TransactionID": transaction}
    return request(2004, Host=host or "", **fields)


def changed_limits(limits: Limits | Mapping[str, int] | None) -> dict[str, int]:
    """The limits that differ from the defaults."""
    if limits is None:
        return {}
    if not isinstance(limits, Limits):
        return dict(limits)
    defaults: dict[str, int] = msgspec.structs.asdict(Limits())
    given: dict[str, int] = msgspec.structs.asdict(limits)
    return {name: value for name, value in given.items() if value != defaults[name]}
