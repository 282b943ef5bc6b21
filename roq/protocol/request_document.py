"""Reading a request so that whatever arrives can be answered."""

from __future__ import annotations

from typing import TypeVar

from roq.errors import InvalidRequest, OtherVersion, RemoteProtocolError
from roq.protocol import documents
from roq.protocol.control import Failure, failure
from roq.protocol.version import WIRE_VERSION, other_version, spoken_in

T = TypeVar("T")


def read_request(data: bytes, kind: type[T]) -> T | Failure:
    """The request in one frame, or the answer that says why there is none.

    Args:
        data: one frame; empty for a request that was empty or had several frames.
        kind: a struct or a union of tagged ones.
    """
    request_id = 0
    try:
        raw = documents.decode_raw(data)
        request_id = _id_of(raw)
        check_version(raw)
        return documents.convert(raw, kind)
    except OtherVersion as error:
        return failure(request_id, str(error), error.code)
    except RemoteProtocolError as error:
        text = f"{error}" if data else "a request is one frame with one BSON document"
        return failure(request_id, text, InvalidRequest.code)


def check_version(document: documents.RawDocument) -> None:
    """Refuse the request of a sender that speaks another version of the wire.

    Raises:
        OtherVersion: it does.
    """
    version = spoken_in(document)
    if version != WIRE_VERSION:
        raise OtherVersion(other_version("the client", version, "the server"))


def _id_of(raw: documents.RawDocument) -> int:
    found = raw.get("id")
    usable = isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 63
    return found if usable and isinstance(found, int) else 0
