"""Public commands: what is understood, and exactly what is answered to what is not."""

import bson
import pytest
from bson.int64 import Int64

from roq.errors import (
    InvalidRequest,
    NotLeader,
    QueueExists,
    QueueNotFound,
    QueueStopped,
    RequestError,
)
from roq.model import Limits
from roq.protocol import control, documents, public, public_answers
from roq.protocol.public import Bad, parse_client, parse_management
from roq.protocol.version import WIRE_VERSION

FIELDS: dict[str, object] = {
    "QName": "orders",
    "Host": "10.0.0.1",
    "AUTOSCALING_NAME": "mine",
    "Address": "tcp://10.0.0.1:9000",
    "Services": {"*": {"delay": 1}},
}
NEEDED = {
    2001: ["QName"],
    2002: ["QName"],
    2003: ["QName", "Host"],
    2004: ["QName"],
    2005: ["QName"],
    2006: ["QName", "AUTOSCALING_NAME"],
    2007: ["QName"],
    2008: ["QName", "Address"],
    2009: [],
    2010: ["QName"],
    2011: ["QName"],
    2101: [],
    2102: [],
    2103: ["QName"],
    2104: ["QName"],
    2105: ["QName", "Services"],
}


def request(number: object, **changes: object) -> bytes:
    fields = {name: FIELDS[name] for name in NEEDED.get(int(number), [])}  # type: ignore[call-overload]
    document = {"CMD": number, **fields, **changes}
    return bson.encode({key: value for key, value in document.items() if value != "absent"})


def comment(data: bytes, port: int = 5003) -> str:
    bad = parse_management(data) if port == 5003 else parse_client(data)
    assert isinstance(bad, Bad)
    answer = bson.decode(bad.answer())
    assert answer["RESULT"] == 1101
    assert answer["CODE"] == "invalid_request"
    return str(answer["COMMENT"])


@pytest.mark.parametrize("number", NEEDED)
@pytest.mark.parametrize("kind", [int, Int64, float])
def test_every_command_is_understood_with_any_kind_of_number(number: int, kind: type) -> None:
    understood = parse_management(request(kind(number)))
    assert not isinstance(understood, Bad)
    assert understood.__struct_config__.tag == number
    for name in NEEDED[number]:
        assert getattr(understood, name) == FIELDS[name]


@pytest.mark.parametrize(
    ("number", "field"), [(number, name) for number, names in NEEDED.items() for name in names]
)
def test_a_missing_field_is_named(number: int, field: str) -> None:
    expected = f"The {field} field is not present, INVALID REQUEST"
    assert comment(request(number, **{field: "absent"})) == expected
    assert comment(request(number, **{field: None})) == expected


@pytest.mark.parametrize("number", [0, 1999, 2000, 2012, 2099, 2106, 3001, -1, 2**40, True, "2001"])
def test_another_command_is_invalid(number: object) -> None:
    assert comment(bson.encode({"CMD": number, "QName": "a"})) == "INVALID CMD Value"


@pytest.mark.parametrize("port", [5000, 5003])
def test_a_document_without_a_command_is_told_so(port: int) -> None:
    expected = "The CMD field is not present, INVALID REQUEST"
    assert comment(bson.encode({"QName": "a"}), port) == expected


@pytest.mark.parametrize("port", [5000, 5003])
@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"hello", b"\xff" * 100, b"\5\0\0\0", bson.encode({"CMD": 2001})[:-3]],
)
def test_bytes_that_are_no_document_are_told_so(port: int, data: bytes) -> None:
    assert "BSON" in comment(data, port)


@pytest.mark.parametrize("name", ["", "a/b", "a,b", "a b", "a\n", "é", "x" * 129, "..", "a\0b"])
@pytest.mark.parametrize("number", [2001, 2003, 2010, 2011, 2104])
def test_names_that_are_not_accepted_are_explained(number: int, name: str) -> None:
    assert "valid queue name" in comment(request(number, QName=name))


@pytest.mark.parametrize("value", [7, 1.5, True, ["a"], {"a": 1}, b"a"])
def test_a_name_of_the_wrong_type_is_explained(value: object) -> None:
    assert "QName" in comment(request(2001, QName=value))


@pytest.mark.parametrize("host", ["", "a b", "tcp://h", "a/b", "x" * 300])
def test_hosts_that_cannot_be_are_refused(host: str) -> None:
    assert "is no host" in comment(request(2003, Host=host))


@pytest.mark.parametrize(
    "address",
    ["", "10.0.0.1:9000", "ipc:///tmp/x", "tcp://h", "tcp://h:0", "tcp://h:70000", "tcp://*:1"],
)
def test_addresses_that_cannot_be_are_refused(address: str) -> None:
    assert "is no address" in comment(request(2008, Address=address))


def test_addresses_may_be_ipv6() -> None:
    assert not isinstance(parse_management(request(2008, Address="tcp://[::1]:9000")), Bad)
    assert not isinstance(parse_management(request(2003, Host="::1")), Bad)


@pytest.mark.parametrize("number", [2003, 2010])
def test_limits_and_durability_are_optional(number: int) -> None:
    plain = parse_management(request(number))
    assert isinstance(plain, public.CreateQueue | public.CreateQueueOn)
    assert public.limits_of(plain.Limits) == Limits()
    given = parse_management(
        request(number, Durability="none", Limits={"ring_bytes": 65536.0, "topics": Int64(9)})
    )
    assert isinstance(given, public.CreateQueue | public.CreateQueueOn)
    limits = public.limits_of(given.Limits)
    assert (limits.ring_bytes, limits.topics, limits.message_bytes) == (65536, 9, 65536)


def test_only_a_log_on_a_disk_lets_go_what_is_done() -> None:
    limits = public.limits_of({"log_until_done": 1})
    assert public.check_limits(limits, "flush") == limits
    assert public.check_limits(limits, "async") == limits
    assert public.check_limits(Limits(), "none") == Limits()
    with pytest.raises(InvalidRequest, match=r"log_until_done.*flush or async"):
        public.check_limits(limits, "none")


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"sugar": 1}, "unknown limit 'sugar'"),
        ({"topics": 0}, "topics must be from 1"),
        ({"batch_messages": 2**40}, "batch_messages must be from 1 to"),
        ({"topics": "many"}, "Limits"),
        ({"topics": 1.5}, "Limits"),
        ({"topics": True}, "Limits"),
        ({"message_bytes": 1 << 20, "ring_bytes": 1 << 16}, "does not fit"),
        ("many", "Limits"),
    ],
)
def test_wrong_limits_are_explained(limits: object, text: str) -> None:
    assert text in comment(request(2010, Limits=limits))


def test_every_limit_has_a_range_that_holds_its_default() -> None:
    defaults = Limits()
    assert set(public.LIMIT_RANGES) == set(Limits.__struct_fields__)
    for name, (low, high) in public.LIMIT_RANGES.items():
        assert low <= getattr(defaults, name) <= high


def test_a_durability_that_does_not_exist_is_refused() -> None:
    assert "only none, async, flush" in comment(request(2010, Durability="disk"))


def test_a_transaction_id_may_be_text_or_number() -> None:
    for given in ("abc", 7, Int64(7), 7.0):
        understood = parse_management(request(2004, TransactionID=given))
        assert isinstance(understood, public.CreateExchange)
        assert str(understood.TransactionID) in {"abc", "7"}
    assert "TransactionID" in comment(request(2004, TransactionID="x" * 129))
    assert "TransactionID" in comment(request(2004, TransactionID=[1]))


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("AUTOSCALING_HOST", ["AUTOSCALING_HOST_CPU", "AUTOSCALING_HOST_RAM"]),
        ("AUTOSCALING_XCHANGE", ["AUTOSCALING_XCHANGE_THR"]),
        ("AUTOSCALING_Q", ["AUTOSCALING_THR_PROD_EXCH", "AUTOSCALING_Q_PROD_EXCH"]),
    ],
)
def test_rules_must_be_complete_and_not_negative(part: str, fields: list[str]) -> None:
    complete = dict.fromkeys(fields, 5)
    assert not isinstance(parse_management(request(2006, **{part: complete})), Bad)
    for name in fields:
        lacking = {key: value for key, value in complete.items() if key != name}
        missing = comment(request(2006, **{part: lacking}))
        assert missing == f"The {name} field is not present, INVALID REQUEST"
        assert name in comment(request(2006, **{part: {**complete, name: -1}}))
        assert name in comment(request(2006, **{part: {**complete, name: "much"}}))
    assert part in comment(request(2006, **{part: 5}))


def test_a_rule_set_needs_a_name() -> None:
    assert "AUTOSCALING_NAME" in comment(request(2006, AUTOSCALING_NAME=""))


# --- the client port ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2000, Int64(2000), 2000.0])
def test_locating_a_queue_is_understood(number: object) -> None:
    understood = parse_client(bson.encode({"CMD": number, "QName": "orders"}))
    assert understood == public.LocateQueue(QName="orders")


def test_locating_without_a_name_is_refused() -> None:
    text = "The QName field is not present, INVALID REQUEST"
    assert comment(bson.encode({"CMD": 2000}), 5000) == text


def test_our_own_requests_are_understood_and_refused_with_their_id() -> None:
    asked = control.LocateRequest(id=9, QName="orders")
    assert parse_client(documents.encode(asked)) == asked
    bad = parse_client(bson.encode({"CMD": 3001, "id": 9, "wire": WIRE_VERSION}))
    assert isinstance(bad, Bad)
    failure = documents.decode(bad.answer(), control.Failure)
    assert (failure.id, failure.CODE) == (9, "invalid_request")


@pytest.mark.parametrize("said", [{}, {"wire": WIRE_VERSION + 1}])
def test_our_own_requests_in_another_version_are_refused_and_both_are_named(said) -> None:
    asked = documents.encode(control.LocateRequest(id=9, QName="orders"))
    foreign = {name: value for name, value in bson.decode(asked).items() if name != "wire"}
    bad = parse_client(bson.encode({**foreign, **said}))
    assert isinstance(bad, Bad)
    failure = documents.decode(bad.answer(), control.Failure)
    assert (failure.id, failure.CODE) == (9, "version")
    assert f"speaks version {said.get('wire', 1)} " in failure.COMMENT
    assert f"the server version {WIRE_VERSION}:" in failure.COMMENT


@pytest.mark.parametrize("number", [2001, 3100, 3999, 0])
def test_other_commands_are_refused_on_the_client_port(number: int) -> None:
    assert comment(bson.encode({"CMD": number, "QName": "a"}), 5000) == "INVALID CMD Value"


# --- answers --------------------------------------------------------------------------------------


def test_an_error_survives_the_way_to_the_client() -> None:
    for error in (QueueNotFound("no"), QueueStopped("no"), InvalidRequest("no"), RequestError("x")):
        answer = bson.decode(public_answers.refusal(error))
        told = public_answers.error_of(answer)
        assert type(told) is type(error)
        assert str(told) == str(error)
    existing = public_answers.error_of(public_answers.failed(QueueExists("queue 'a' exists")))
    assert isinstance(existing, QueueExists)
    assert str(existing) == "The queue already exists"
    elsewhere = public_answers.error_of(public_answers.failed(NotLeader("", "tcp://o:5003")))
    assert isinstance(elsewhere, NotLeader)
    assert elsewhere.endpoint == "tcp://o:5003"
    assert public_answers.error_of(public_answers.done()) is None


def test_answers_carry_int32() -> None:
    data = documents.encode_raw(public_answers.done(Number=2))
    assert type(bson.decode(data)["RESULT"]) is int
    assert b"\x10RESULT\x00" in data
    assert b"\x10Number\x00" in data


def test_the_reference_has_a_row_for_every_command() -> None:
    table = public.reference()
    for number in NEEDED:
        assert f"| {number} |" in table
    assert "| 2000 |" not in table, "another port"
    numbers = [command.number for command in public.COMMANDS]
    assert numbers == sorted(set(numbers))
    assert all(command.request.__doc__ for command in public.COMMANDS)
