"""Whatever exchanges, clients and managers say: a monitor goes on, and what it says can be sent."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_driver import QUEUE_ID, Driver, info, peer_of

from roq.model import ElasticRules, ExchangeInfo
from roq.monitor.events import Ask, Effect, LeaderAnswered, Push, Received, Send
from roq.protocol import documents
from roq.protocol.control import (
    Alive,
    Attach,
    Done,
    Elasticity,
    Empty,
    ExchangeReport,
    Failure,
    Join,
    Relocated,
    ScaledOut,
)
from roq.protocol.reports import ExchangeLoad, HostUse, PublisherLoad

INT = st.integers(0, 5) | st.sampled_from([-1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63)])
FLOAT = INT.map(float) | st.floats()
TEXT = st.sampled_from(["", "accepted", "failed", "publisher", "subscriber", "\0", "ü" * 300])
IDS = st.sampled_from([b"", b"a", b"b" * 16, b"z" * 70])
KEYS = st.lists(st.tuples(INT, INT), max_size=3)
QUEUES = st.sampled_from([QUEUE_ID, QUEUE_ID, QUEUE_ID, b"another"])

LOADS = st.fixed_dictionaries(
    {},
    optional={
        name: FLOAT if name in {"cpu_percent", "lag_ms"} else INT
        for name in ExchangeLoad.__struct_fields__
    },
).map(lambda fields: ExchangeLoad(**fields))
EXCHANGES = st.integers(1, 3).map(info) | st.builds(
    ExchangeInfo, number=INT, epoch=INT, host=TEXT,
    data=TEXT | st.just("tcp://a:1"), live=st.just("tcp://a:2"),
)  # fmt: skip
MESSAGES = st.one_of(
    st.builds(
        ExchangeReport, id=st.just(1), queue_id=QUEUES, exchange=EXCHANGES, load=LOADS,
        top=st.lists(st.builds(PublisherLoad, IDS, INT, INT), max_size=3), stopping=st.booleans(),
    ),
    st.builds(Attach, id=st.just(1), queue_id=QUEUES, publisher=IDS, failed=KEYS),
    st.builds(Join, id=st.just(1), queue_id=QUEUES, subscriber=IDS),
    st.builds(
        Alive, queue_id=QUEUES, client=IDS, role=TEXT, version=INT, at=KEYS, epoch=INT,
        read=st.lists(st.tuples(INT, INT, INT), max_size=3), received=INT, latency_ms=FLOAT,
        lost=INT,
    ),
    st.builds(
        Relocated, queue_id=QUEUES, publisher=IDS, epoch=INT, outcome=TEXT, failed=KEYS,
        reason=TEXT, pause_us=INT,
    ),
    st.builds(Empty, id=st.just(1), queue_id=QUEUES, number=INT),
)  # fmt: skip
ANSWERS = st.one_of(
    st.builds(ScaledOut, number=INT, host=TEXT),
    st.builds(Done),
    st.builds(Failure, RESULT=INT, COMMENT=TEXT, CODE=TEXT),
    st.builds(
        Elasticity, queue_id=QUEUES, scaled=st.lists(INT, max_size=3),
        rules=st.builds(ElasticRules, exchange_bytes=INT, exchanges_max=INT, exchanges_min=INT,
                        latency_ms=INT, host_cpu_percent=INT, cooldown_seconds=INT),
        hosts=st.lists(st.builds(HostUse, host=TEXT, cpu_percent=FLOAT, memory_used_bytes=INT,
                                 live=st.booleans()), max_size=2),
    ),
)  # fmt: skip
STEPS = st.lists(
    MESSAGES | MESSAGES | ANSWERS | st.sampled_from([0.1, 1.0, 3.0, 11.0]), max_size=40
)


class Hearing(Driver):
    """A monitor whose words are put on a wire."""

    def __init__(self, *, restarted: bool) -> None:
        self.open: list[Ask] = []
        super().__init__(restarted=restarted)

    def heard(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send | Push | Ask):
                documents.encode(effect.message)
            if isinstance(effect, Ask):
                self.open.append(effect)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans())
def test_nothing_that_can_be_said_ends_a_monitor(steps: list[object], restarted: bool) -> None:
    monitor = Hearing(restarted=restarted)
    for step in steps:
        match step:
            case float():
                monitor.heard(monitor.advance(step))
            case ScaledOut() | Done() | Failure() | Elasticity():
                if monitor.open:
                    serial = monitor.open.pop().serial
                    monitor.heard(monitor.handle(LeaderAnswered(serial, step)))
            case _:
                monitor.heard(monitor.handle(Received(peer_of("anybody"), step)))  # type: ignore[arg-type]
    monitor.heard(monitor.advance(3.0))
