"""What RoQ's processes and clients say to each other: each has its number, and its limits."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from document_shapes import documents_of, outside, smallest

from roq.errors import RemoteProtocolError, RequestError
from roq.protocol import control, documents
from roq.protocol.version import WIRE_VERSION

DOCS = Path(__file__).resolve().parents[3] / "docs"
MESSAGES = [each for each in documents_of(control) if each is not control.Control]
REQUESTS = (control.GcmRequest, control.HcmRequest, control.MonitorRequest)
UNIONS = (*REQUESTS, control.Answer)


def number(kind: type[msgspec.Struct]) -> int:
    found = kind.__struct_config__.tag
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_message_is_read_as_it_was_sent_by_all_who_may_get_it(
    kind: type[control.Control],
) -> None:
    known = documents.convert(smallest(kind), kind)
    assert known.wire == WIRE_VERSION
    whole = documents.encode(known)
    readers = [each for each in UNIONS if kind in get_args(each)]
    assert readers, "nobody reads it"
    assert [documents.decode(whole, each) for each in readers] == [known] * len(readers)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_what_a_field_cannot_be_is_refused_by_its_name(kind: type[control.Control]) -> None:
    for field, wrong in outside(kind):
        with pytest.raises(RemoteProtocolError, match=rf"`\$\.{field}"):
            documents.convert({**smallest(kind), field: wrong}, kind)


def test_no_two_messages_have_one_number_and_the_document_has_them_all() -> None:
    numbers = {number(each): each.__name__ for each in MESSAGES}
    assert len(numbers) == len(MESSAGES)
    reference = (DOCS / "protocol.md").read_text()
    told = dict(re.findall(r"\*\*(\w+)\*\* · CMD (3\d\d\d)", reference))
    assert {name: int(each) for name, each in told.items()} == {
        name: each for each, name in numbers.items()
    }


def test_the_table_of_the_module_names_what_it_numbers() -> None:
    numbers = {number(each): each.__name__ for each in MESSAGES}
    table = re.findall(r"(3\d\d\d) ([A-Z]\w+)", control.__doc__ or "")
    assert len(table) > 20
    ours = {int(tag): numbers[int(tag)].startswith(name) for tag, name in table}
    assert [tag for tag, same in ours.items() if not same] == []


@pytest.mark.parametrize("union", UNIONS)
def test_a_number_that_nobody_has_given_is_refused_by_all(union: object) -> None:
    with pytest.raises(RemoteProtocolError, match="3997"):
        documents.convert({"CMD": 3997, "id": 1}, union)  # type: ignore[arg-type]


def test_no_server_takes_an_answer_for_a_request_but_what_is_both() -> None:
    # A report answers an inventory; what is asked in order is passed on by monitors.
    both = {control.HostReport, control.OrderAsk, control.OrderTold}
    assert {kind for each in REQUESTS for kind in get_args(each)} & set(
        get_args(control.Answer)
    ) == both


def test_an_answer_that_says_nothing_of_its_result_has_worked() -> None:
    answers = [each for each in MESSAGES if "RESULT" in each.__struct_fields__]
    assert len(answers) > 10
    for each in answers:
        if each is not control.Failure:
            assert documents.convert(smallest(each), each).RESULT == control.OK == 0


def test_a_refusal_says_what_to_people_and_to_programs() -> None:
    refused = control.failure(7, "not now")
    assert (refused.id, refused.RESULT, refused.COMMENT) == (7, 1101, "not now")
    assert refused.CODE == control.UNAVAILABLE == "unavailable"
    assert (
        control.failure(7, "no", RequestError.code).CODE
        == control.Failure(RESULT=control.FAILED, COMMENT="").CODE
    )  # what says no code has failed


def test_what_an_earlier_sender_does_not_know_is_the_harmless_one() -> None:
    stop = documents.convert(smallest(control.StopQueue), control.StopQueue)
    assert (stop.number, stop.erase, stop.empty, stop.reason) == (-1, False, False, "stopped")
    scale_in = documents.convert(smallest(control.ScaleIn), control.ScaleIn)
    assert (scale_in.end, scale_in.holds_nothing) == (-1, False)
    assert documents.convert(smallest(control.Emptied), control.Emptied).end == -1
    empty = documents.convert(smallest(control.Empty), control.Empty)
    assert (empty.wanted, empty.at_once, empty.read_seconds) == (True, False, 0)
    started = documents.convert(smallest(control.StartExchange), control.StartExchange)
    assert (started.durability, started.base) == ("none", 0)
    ack = documents.convert(smallest(control.ChildAck), control.ChildAck)
    assert (ack.action, ack.monitor) == ("keep", "")
    known = documents.convert(smallest(control.ExchangeAck), control.ExchangeAck)
    assert (known.retire, known.hold_seconds, known.services) == (False, None, None)
