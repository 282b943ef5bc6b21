"""What processes tell of themselves is read as it was told, and refused where it cannot be."""

import msgspec
import pytest
from document_shapes import documents_of, outside, shape, smallest
from msgspec import inspect

from roq.errors import RemoteProtocolError
from roq.model import CLIENT_NAME_MAX
from roq.protocol import documents, reports
from roq.protocol.reports import ClientName, ExchangeLoad, PublisherLoad

DOCUMENTS = [each for each in documents_of(reports) if not each.__struct_config__.array_like]


class Named(msgspec.Struct):
    name: ClientName


@pytest.mark.parametrize("kind", DOCUMENTS, ids=lambda kind: kind.__name__)
def test_every_document_is_read_as_it_was_told(kind: type[msgspec.Struct]) -> None:
    known = documents.convert(smallest(kind), kind)
    assert documents.decode(documents.encode(known), kind) == known


@pytest.mark.parametrize("kind", DOCUMENTS, ids=lambda kind: kind.__name__)
def test_what_a_field_cannot_be_is_refused_by_its_name(kind: type[msgspec.Struct]) -> None:
    for field, wrong in outside(kind):
        with pytest.raises(RemoteProtocolError, match=rf"`\$\.{field}"):
            documents.convert({**smallest(kind), field: wrong}, kind)


def test_an_exchange_that_says_nothing_of_its_load_has_none() -> None:
    nothing = documents.convert({}, ExchangeLoad)
    kinds = {each.name: each.type for each in shape(ExchangeLoad).fields}
    measures = {
        name: getattr(nothing, name) for name, kind in kinds.items()
        if isinstance(kind, inspect.IntType | inspect.FloatType)
    }  # fmt: skip
    assert len(measures) > 40
    assert set(measures.values()) == {0}


def test_the_load_of_a_publisher_travels_without_names() -> None:
    sent = msgspec.to_builtins(PublisherLoad(b"p" * 16, 5, 700), builtin_types=(bytes,))
    assert sent == [b"p" * 16, 5, 700]
    assert msgspec.convert(sent, PublisherLoad) == PublisherLoad(b"p" * 16, 5, 700)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert([b"p" * 16, -1, 700], PublisherLoad)


@pytest.mark.parametrize("name", ["", "billing", "Zürich 7", "帳簿", "x" * CLIENT_NAME_MAX])
def test_a_client_may_call_itself_what_can_be_shown(name: str) -> None:
    assert documents.convert({"name": name}, Named).name == name


@pytest.mark.parametrize(
    "name",
    ["two\nlines", "\x1b[31mred", "\x00", "\x7f", "\x85", "tur\u202ened", "\u200f", "\u2028",
     "\u2069", "ends\n", "x" * (CLIENT_NAME_MAX + 1)],
)  # fmt: skip
def test_a_name_that_would_change_what_people_see_is_refused(name: str) -> None:
    with pytest.raises(RemoteProtocolError, match="name"):
        documents.convert({"name": name}, Named)


def test_a_check_that_says_no_more_is_needed_and_a_host_that_says_no_more_lives() -> None:
    assert reports.Check(name="registry", ok=False).essential
    assert reports.HostUse(host="h1").live
    child = documents.convert(smallest(reports.ChildInfo), reports.ChildInfo)
    assert (child.durability, child.pid, child.generation) == ("none", 0, 0)
