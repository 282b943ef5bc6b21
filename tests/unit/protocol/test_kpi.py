import bson
import pytest

from roq.errors import RemoteProtocolError
from roq.protocol import kpi

IDENTITY = kpi.OldExchange(X_ID="x1", QName="orders")
COUNTS = kpi.OldCounts(
    Minute="2", TotalProcessed="10", Processed="4", TotalThroughput="1000", Throughput="400",
    Producers="3",
)  # fmt: skip
USAGE = kpi.OldUsage(CPU="12.5", MEMORY="40")
QUEUE = kpi.OldQueue(QName="orders", XChanges="2", Producers="3", Throughput="400")
SUBSCRIBER = kpi.OldSubscriber(
    QName="orders", Minute="2", TotalReceived="7", Received="1", SubsriberID="ab", MeanLat="0.4"
)
NUMERIC = kpi.QueueKpi(
    queue="orders", queue_id=b"q" * 16, monitor_epoch=1 << 35, version=3, exchanges=2, publishers=3,
    subscribers=4, waiting=0, limit_bytes_per_second=1.25e6, messages_in_per_second=4.0,
    bytes_in_per_second=0.5, messages_out_per_second=0.0, bytes_out_per_second=0.0,
)  # fmt: skip


def test_an_exchange_takes_three_frames_with_the_old_names() -> None:
    frames = kpi.old_exchange_frames(IDENTITY, COUNTS, USAGE)
    assert [bson.decode(frame) for frame in frames] == [
        {"CMD": 20, "X_ID": "x1", "QName": "orders"},
        {
            "CMD": 21, "Minute": "2", "TotalProcessed": "10", "Processed": "4",
            "TotalThroughput": "1000", "Throughput": "400", "Producers": "3",
        },
        {"CMD": 22, "CPU": "12.5", "MEMORY": "40"},
    ]  # fmt: skip


def test_queue_and_subscriber_take_one_frame_with_the_old_names() -> None:
    assert [bson.decode(frame) for frame in kpi.old_frames(QUEUE)] == [
        {"CMD": 23, "QName": "orders", "XChanges": "2", "Producers": "3", "Throughput": "400"}
    ]
    assert list(bson.decode(kpi.old_frames(SUBSCRIBER)[0])) == [
        "CMD", "QName", "Minute", "TotalReceived", "Received", "SubsriberID", "MeanLat",
    ]  # fmt: skip


def test_the_command_of_an_old_document_is_an_int32() -> None:
    assert kpi.old_frames(QUEUE)[0][4:13] == b"\x10CMD\0" + (23).to_bytes(4, "little")


def test_every_frame_of_a_numeric_message_is_bson_with_a_command_old_readers_do_not_know() -> None:
    known = {20, 21, 22, 23, 31}
    for frame in kpi.numeric_frames(NUMERIC):
        assert bson.decode(frame)["CMD"] not in known


def test_the_numeric_topic_selects_numeric_messages_only() -> None:
    old = [kpi.old_exchange_frames(IDENTITY, COUNTS, USAGE), kpi.old_frames(QUEUE),
           kpi.old_frames(SUBSCRIBER)]  # fmt: skip
    assert kpi.numeric_frames(NUMERIC)[0].startswith(kpi.NUMERIC_TOPIC)
    assert not any(frames[0].startswith(kpi.NUMERIC_TOPIC) for frames in old)


def test_documents_survive_a_round_trip() -> None:
    frames = kpi.old_exchange_frames(IDENTITY, COUNTS, USAGE)
    assert kpi.decode(frames) == [IDENTITY, COUNTS, USAGE]
    assert kpi.decode(kpi.numeric_frames(NUMERIC)) == [kpi.NumericHeader(), NUMERIC]
    assert kpi.decode_numeric(kpi.numeric_frames(NUMERIC)) == NUMERIC


@pytest.mark.parametrize(
    "frames",
    [[], [b""], [b"garbage"], [bson.encode({"CMD": 99})], [bson.encode({"CMD": 23})],
     [kpi.NUMERIC_TOPIC] * 5],
    ids=["no frame", "empty", "garbage", "unknown command", "field missing", "too many"],
)  # fmt: skip
def test_what_is_not_of_this_stream_is_refused_with_a_reason(frames) -> None:
    with pytest.raises(RemoteProtocolError):
        kpi.decode(frames)


def test_a_numeric_reader_refuses_an_old_message() -> None:
    with pytest.raises(RemoteProtocolError, match="not a numeric"):
        kpi.decode_numeric(kpi.old_frames(QUEUE))


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (12, "12"), (0.0, "0"), (1.5, "1.5"), (0.12345, "0.123")]
)
def test_numbers_are_shown_without_useless_digits(number, shown) -> None:
    assert kpi.text(number) == shown
