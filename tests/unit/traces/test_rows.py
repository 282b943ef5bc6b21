"""What becomes a row, and what is rejected with which words."""

from __future__ import annotations

import json
import re

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import BEGAN_US, RUN, Story, exchange, move, queue, scale

from roq.protocol.requesting import Durations
from roq.simulation.lab.traces import rows
from roq.simulation.lab.traces.rows import Message, record_batches, row_of
from roq.simulation.lab.traces.tables import (
    EVENTS,
    KPI,
    LATENCY,
    REJECTED,
    SCHEMAS,
    TABLE,
    WIDE,
)

CLIENT = {
    "kind": "client", "version": 1, "run": RUN, "time_us": BEGAN_US, "source": "s", "number": 0,
    "client": "c", "role": "subscriber", "begin_us": BEGAN_US, "seconds": 1.0,
}  # fmt: skip


def message(payload: bytes, topic: str = "kpi") -> Message:
    return Message(payload, topic, b"s" * 16, 3, BEGAN_US + 5)


def rows_of(*messages: Message) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for batch in record_batches(messages, RUN, BEGAN_US):
        assert batch.schema.equals(WIDE)
        found += batch.to_pylist()
    return found


def rejected(payload: object) -> str:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    (row,) = rows_of(message(data))
    assert row[TABLE] == REJECTED
    return str(row["reason"])


def test_parts_and_tables_of_a_document_have_columns() -> None:
    story = Story()
    waited = Durations(seconds=1.5, counts=[0, 2])
    told = msgspec.structs.replace(
        exchange(3, 70), requests_discarded_by={"busy": 2}, requests_waiting=waited
    )
    story.document(1.0, told)
    (row,) = rows_of(*story.messages)
    assert row["requests_discarded_by"] == '{"busy":2}'
    assert row["requests_waiting"] == msgspec.structs.asdict(waited)


def test_documents_clients_and_events_go_into_their_tables() -> None:
    story = Story()
    for document in (exchange(3, 70), queue(1), move("accepted"), scale("out", "done")):
        story.document(1.0, document)
    story.client("subscriber-1", 1.0, [0.001, 0.002, 0.002], messages=3)
    story.event(1.0, "fault", "kill")  # type: ignore[arg-type]
    assert [row[TABLE] for row in rows_of(*story.messages)] == [KPI] * 4 + [LATENCY, EVENTS]
    found = [row_of(each, RUN, BEGAN_US) for each in story.messages]
    assert [row.table for row in found] == [KPI] * 4 + [LATENCY, EVENTS]
    assert [row.values.get("kind") for row in found[:4]] == ["exchange", "queue", "move", "scale"]
    first = found[0].values
    assert (first["exchange"], first["bytes_in"], first["queue_id"]) == (3, 70, (b"q" * 16).hex())
    assert found[4].values["counts"] == [1, 2]


def test_what_a_row_holds_stands_beside_columns_of_other_kinds() -> None:
    story = Story()
    story.document(1.0, exchange(3, 70))
    row = row_of(story.messages[0], RUN, BEGAN_US)
    wanted = {TABLE: KPI, **row.values}
    assert rows_of(*story.messages) == [{name: wanted.get(name) for name in WIDE.names}]


def test_columns_of_several_kinds_have_one_type() -> None:
    for schema in SCHEMAS.values():
        assert [WIDE.field(field.name).type for field in schema] == schema.types


def test_rows_come_in_batches_that_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ROWS_MAX", 2)
    story = Story()
    for at in range(5):
        story.document(at, queue(1))
    batches: list[pa.RecordBatch] = list(record_batches(story.messages, RUN, BEGAN_US))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "another"}, "another run, 'another'"),
        ({"version": 2}, "written by a later RoQ"),
        ({"time_us": BEGAN_US + 90_000_000_000}, r"\+25 hours"),
        ({"begin_us": BEGAN_US - 90_000_000_000}, "-25 hours"),
        ({"latency": {"x": 1}}, "buckets of latencies are numbers"),
        ({"latency": {"-1": 1}}, "buckets of latencies are 0 to"),
        ({"latency": {"999999999999": 1}}, "buckets of latencies are 0 to"),
        ({"seconds": 1e9}, "too long"),
        ({"latency_sum": 1e300}, "a million years"),
        ({"clock_error": 1e300}, "a million years"),
        ({"messages": 2**63}, "cannot hold"),
        ({"latency": {"5": 2**70}}, "cannot hold"),
        ({"latency_sum": "much"}, "not a trace"),
        ({"role": "consumer"}, "not a trace"),
        ({"number": -1}, "not a trace"),
    ],
)
def test_a_client_that_tells_the_impossible_is_rejected(
    change: dict[str, object], words: str
) -> None:
    assert re.search(words, rejected({**CLIENT, **change}))


def test_events_and_documents_that_nobody_knows_are_rejected_by_name() -> None:
    event = {"kind": "event", "run": RUN, "time_us": BEGAN_US, "source": "s", "number": 0}
    assert "'earthquake'" in rejected({**event, "event": "earthquake"})
    later = {**event, "kind": "kpi", "document": {"CMD": 46, "queue": "q"}}
    assert "a kind that is not known" in rejected(later)
    assert "not a trace" in rejected({**event, "kind": "profile"})
    assert "not a trace" in rejected(b"\xff\xfe")
    assert "not a trace" in rejected(b"")


def test_what_a_later_monitor_tells_beyond_is_kept() -> None:
    story = Story()
    story.document(0.0, queue(1))
    trace = json.loads(story.messages[0].payload)
    later = {"groups": 4, "exchange": "x2"}
    trace["document"] |= later
    row = row_of(message(json.dumps(trace).encode()), RUN, BEGAN_US)
    assert json.loads(str(row.values["other"])) == later


def test_one_bad_value_does_not_spoil_its_neighbours() -> None:
    story = Story()
    for _ in range(5):
        story.client("subscriber-1", 0.0, [0.001], messages=1)
    bad = message(json.dumps({**CLIENT, "bytes": 2**64}).encode())
    found = rows_of(*story.messages[:2], bad, *story.messages[2:])
    assert [row[TABLE] for row in found] == [LATENCY] * 2 + [REJECTED] + [LATENCY] * 3


@given(st.lists(st.one_of(
    st.binary(max_size=60),
    st.dictionaries(st.sampled_from([*CLIENT, "latency", "document", "event", "text"]),
                    st.recursive(st.none() | st.integers() | st.floats() | st.text(),
                                 lambda inner: st.dictionaries(st.text(max_size=3), inner)),
                    ).map(lambda some: msgspec.json.encode({**CLIENT, **_plain(some)})),
), max_size=5))  # fmt: skip
def test_whatever_comes_every_message_is_one_row(payloads: list[bytes]) -> None:
    assert len(rows_of(*map(message, payloads))) == len(payloads)


def _plain(some: dict[str, object]) -> dict[str, object]:
    """Without what JSON cannot say."""
    try:
        msgspec.json.encode(some)
    except (UnicodeEncodeError, msgspec.EncodeError):
        return {}
    return some


def test_long_payloads_are_kept_in_part() -> None:
    row = row_of(message(b"x" * 10_000), RUN, BEGAN_US)
    assert row.values["bytes"] == 10_000
    assert len(row.values["payload"]) == 4_096  # type: ignore[arg-type]
