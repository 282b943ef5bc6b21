"""What a batch of delayed messages holds, and what is made of it."""

from __future__ import annotations

import pytest
from exchange_driver import publisher_id

from roq.errors import RemoteProtocolError
from roq.exchange.delayed_message import delivered, messages_of, published
from roq.protocol import batch
from roq.protocol.attributes import (
    PROPERTIES_MAX,
    RESERVED_MAX,
    Attributes,
    BatchAttributes,
    pack_attributes,
)
from roq.protocol.delayed import DELAYED_TOPIC, Delayed, encode_delayed


def sent(*messages: Delayed, given: dict[int, Attributes] | None = None, link: int = 1) -> bytes:
    return batch.pack(
        [encode_delayed(each) for each in messages], publisher=publisher_id("p"), epoch=1,
        link_number=link, first_sequence=0, created_us=7,
        attributes=None if given is None else pack_attributes(given),
    )  # fmt: skip


def test_it_is_known_who_has_published_it_and_when() -> None:
    (held,) = messages_of(sent(Delayed(9, b"t", b"x", b"12345678")))
    assert (held.message.publisher, held.message.published_us) == (publisher_id("p"), 7)
    again = Delayed(9, b"t", b"x", b"12345678", b"p" * 8, 5)
    (held,) = messages_of(sent(again, link=0))
    assert held.message == again
    assert delivered(held).properties["roq.delayed.published"] == "5"


@pytest.mark.parametrize("topic", [DELAYED_TOPIC, b"\xff", b"\xffz"])
def test_a_topic_that_is_no_program_s_is_refused(topic: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        messages_of(sent(Delayed(9, topic, b"", b"12345678")))


def test_all_that_it_has_counts_for_what_it_takes() -> None:
    bare = Delayed(9, b"t", b"x", b"12345678")
    given = {
        0: Attributes(),
        1: Attributes(properties={"p": "y" * 4_000}),
        2: Attributes(properties={f"{number:03}": "zz" for number in range(100)}),
    }
    plain, long, many = (held.bytes for held in messages_of(sent(bare, bare, bare, given=given)))
    assert 200 < plain < 400
    assert plain + 4_000 < long < plain + 4_200
    assert many > plain + 100 * (5 + 2 * 49), "each of them is two objects"


def test_one_with_more_properties_than_may_be_spoils_no_others() -> None:
    """An exchange takes none of these; a log that it finds may have one."""
    most = {str(number): "" for number in range(PROPERTIES_MAX + RESERVED_MAX)}
    two = Delayed(9, b"t", b"x", b"12345678"), Delayed(9, b"t", b"y", b"87654321")
    out = published(messages_of(sent(*two, given={0: Attributes(properties=most)})))
    assert out.attributes is not None
    found = BatchAttributes(out.attributes, 0, 2)
    assert len(found.of(0).properties) == len(most)
    assert [found.of(at).properties["roq.delayed.id"] for at in (0, 1)] == [
        each.id.hex() for each in two
    ]
