"""What travels on the sockets of an exchange: letters that are no topics, and documents."""

import re
from types import ModuleType

import msgspec
import pytest
from document_shapes import documents_of, outside, smallest

from roq.errors import RemoteProtocolError
from roq.protocol import channel, consuming, delayed, documents, requesting, transaction
from roq.protocol.channel import pack_runs, read_number, read_runs, transfer_seconds
from roq.protocol.version import WIRE_VERSION

DOCUMENTS = [each for each in documents_of(channel) if not each.__struct_config__.array_like]


def letters(module: ModuleType) -> dict[str, bytes]:
    return {
        name: each for name, each in vars(module).items()
        if name.isupper() and isinstance(each, bytes) and len(each) == 2 and each[:1] == b"\xff"
    }  # fmt: skip


def test_nothing_that_begins_with_a_letter_can_be_a_topic() -> None:
    found = letters(channel)
    assert len(found) > 15
    for each in found.values():
        assert each[0] == channel.CONTROL
        with pytest.raises(UnicodeDecodeError):
            each.decode()


def test_each_kind_has_a_letter_of_its_own() -> None:
    ours = letters(channel)
    assert len(set(ours.values())) == len(ours)
    for other in (consuming, delayed, requesting, transaction):
        imported = {name for name in letters(other) if name in ours}
        theirs = {each for name, each in letters(other).items() if name not in imported}
        assert theirs & set(ours.values()) == set(), other.__name__


def test_the_table_of_the_module_has_every_letter() -> None:
    told = set(re.findall(r"\bFF ([A-Za-z])\b", channel.__doc__ or ""))
    assert told == {chr(each[1]) for each in letters(channel).values()}


@pytest.mark.parametrize("kind", DOCUMENTS, ids=lambda kind: kind.__name__)
def test_every_document_is_read_as_it_was_sent(kind: type[msgspec.Struct]) -> None:
    known = documents.convert(smallest(kind), kind)
    assert documents.decode(documents.encode(known), kind) == known


@pytest.mark.parametrize("kind", DOCUMENTS, ids=lambda kind: kind.__name__)
def test_what_a_field_cannot_be_is_refused_by_its_name(kind: type[msgspec.Struct]) -> None:
    for field, wrong in outside(kind):
        with pytest.raises(RemoteProtocolError, match=rf"`\$\.{field}"):
            documents.convert({**smallest(kind), field: wrong}, kind)


def test_a_stream_of_a_hello_travels_without_names() -> None:
    hello = channel.Hello(
        queue=b"q" * 16, publisher=b"p" * 16, epoch=1, attempt=2,
        streams=[channel.StreamState(b"orders", 5, 7)],
    )  # fmt: skip
    sent = documents.decode_raw(documents.encode(hello))
    assert sent["streams"] == [[b"orders", 5, 7]]
    assert documents.convert(sent, channel.Hello) == hello
    assert (hello.version, hello.places, hello.incarnation) == (WIRE_VERSION, 0, 0)


def test_an_acknowledgement_has_its_number_and_where_batches_lie() -> None:
    runs = [(1, 100, 3), (4, 1 << 60, 1)]
    frame = channel.NUMBER.pack(4) + pack_runs(runs)
    assert (read_number(frame), read_runs(frame)) == (4, runs)
    assert read_runs(channel.NUMBER.pack(4)) == []


@pytest.mark.parametrize("size", [0, 7, 9, 16, 31, 33])
def test_an_acknowledgement_of_another_size_is_refused_with_it(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"this one {size}"):
        read_number(bytes(size))


def test_what_is_on_its_way_has_time_by_its_size() -> None:
    assert transfer_seconds(0) == 0
    assert transfer_seconds(8 * 1024 * 1024) == 2.0


def test_a_reader_keeps_all_of_its_nonce_but_what_it_tries_anew() -> None:
    assert channel.READER_BYTES == channel.NONCE_BYTES - 1 == 15


def test_what_an_earlier_sender_does_not_know_is_the_harmless_one() -> None:
    ready = documents.convert(smallest(channel.Ready), channel.Ready)
    assert (ready.durable, ready.ahead, ready.taken) == (False, False, 0)
    reading = documents.convert(smallest(channel.Reading), channel.Reading)
    assert (reading.behind, reading.near, reading.next) == (False, True, 0)
    held = documents.convert(smallest(channel.Held), channel.Held)
    assert (held.disk, held.group, held.full) == (False, False, "")
    assert not documents.convert(smallest(channel.Position), channel.Position).leaves
