"""Whatever comes in, in whatever order: one answer per request, and nothing stuck."""

import bson
from gcm_script import OTHER, PaperHost, Script
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roq.errors import RegistryAway, RemoteProtocolError
from roq.gcm import events
from roq.gcm.state.records import LOGS
from roq.protocol import broadcast, documents, public
from roq.protocol.control import (
    Control,
    ScaleIn,
    ScaleOut,
    StartExchange,
    StartMonitor,
    StopQueue,
)

KEYS = st.text(max_size=8).filter(lambda key: "\0" not in key)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.sampled_from(["orders", "h1", "tcp://l:1", "none"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=8).filter(lambda key: "\0" not in key), inner, max_size=3
        )
    ),
    max_leaves=6,
)
NUMBERS = st.sampled_from(
    [command.number for command in public.COMMANDS] + [3000, 3001, 3010, 3020, 3021, 3022, 9]
)
FIELDS = st.sampled_from(
    [
        *("QName", "Host", "TransactionID", "Address", "Limits", "Durability"),
        *("AUTOSCALING_NAME", "AUTOSCALING_HOST", "AUTOSCALING_Q"),
        *("id", "host", "epoch", "control", "children", "Exchange"),
        *("queue", "queue_id", "transaction", "reason", "number"),
    ]
)
DOCUMENTS = st.builds(
    lambda number, fields: bson.encode({**fields, "CMD": number}),
    NUMBERS | VALUES,
    st.dictionaries(FIELDS, VALUES, max_size=5),
)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80) | DOCUMENTS, st.sampled_from([5000, 5003]))
def test_any_frame_gets_one_answer_that_is_a_document(data: bytes, port: int) -> None:
    script = Script(PaperHost("h1"))
    peer = script.send_raw(data, port=port)
    script.settle()
    (answer,) = script.answers[peer]
    assert bson.decode(answer)["RESULT"] in {0, 1101}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=60) | DOCUMENTS, max_size=4))
def test_reading_a_broadcast_raises_nothing_but_protocol_errors(frames: list[bytes]) -> None:
    try:
        broadcast.decode(frames)
    except RemoteProtocolError:
        return


NAMES = st.sampled_from(["a", "b"])
HOSTS = st.sampled_from(["h1", "h2"])
REQUESTS = st.one_of(
    st.tuples(st.sampled_from([2001, 2002, 2005, 2010, 2104]), NAMES),
    st.tuples(st.just(2003), NAMES, HOSTS),
    st.tuples(st.just(2004), NAMES, HOSTS, st.sampled_from(["t", "u", ""])),
    st.tuples(st.just(2100), NAMES, st.integers(1, 4)),
    st.tuples(st.sampled_from([2110, 2111, 2112, 2113]), HOSTS),
    st.tuples(st.just(3020), NAMES, st.sampled_from(["t", "u", "v"])),
    st.tuples(st.just(3021), NAMES, st.integers(1, 4)),
)
STEPS = st.one_of(
    REQUESTS.map(lambda request: ("request", request)),
    REQUESTS.map(lambda request: ("request", request)),
    st.integers(0, 5).map(lambda which: ("complete", which)),
    st.integers(0, 5).map(lambda which: ("complete", which)),
    st.integers(0, 5).map(lambda which: ("complete", which)),
    st.integers(0, 5).map(lambda which: ("fail", which)),
    st.integers(0, 5).map(lambda which: ("never", which)),
    st.tuples(HOSTS, st.sampled_from([StartMonitor, StartExchange, StopQueue])).map(
        lambda what: ("mute", what)
    ),
    st.tuples(NAMES, st.sampled_from(["mute", "full", "empty"])).map(
        lambda what: ("monitor", what)
    ),
    HOSTS.map(lambda name: ("report", name)),
    HOSTS.map(lambda name: ("leave", name)),
    st.sampled_from([0.5, 4.0, 12.0]).map(lambda seconds: ("wait", seconds)),
    st.sampled_from(["suspend", "back", "lost", "follow", "elect"]).map(
        lambda what: ("registry", what)
    ),
)


def scaling(script: Script, number: int, name: str, argument: object) -> bytes:
    """What the monitor of a queue asks of the configuration manager."""
    queue = script.machine.queues.get(name)
    queue_id = queue.record.queue_id if queue is not None else b"unknown"
    message: Control
    if number == ScaleOut.__struct_config__.tag:
        message = ScaleOut(
            id=1, queue=name, queue_id=queue_id, transaction=str(argument), reason="load"
        )
    else:
        assert isinstance(argument, int)
        message = ScaleIn(id=1, queue=name, queue_id=queue_id, number=argument, reason="idle")
    return documents.encode(message)


def act(script: Script, peers: list[int], kind: str, value: object) -> None:  # noqa: C901, PLR0912
    match kind, value:
        case "request", ((3020 | 3021) as number, name, argument):
            peers.append(script.send_raw(scaling(script, number, name, argument), port=5000))
        case "request", ((2110 | 2111 | 2112 | 2113) as number, name):
            peers.append(script.send(number, Host=name))
        case "request", (2100, name, number):
            peers.append(script.send(2100, QName=name, Exchange=number))
        case "request", (number, name, *more):
            fields: dict[str, object] = dict(zip(["Host", "TransactionID"], more, strict=False))
            if number in {2003, 2010} and name == "b":
                fields["Durability"] = "flush"
            peers.append(script.send(number, QName=name, **fields))
        case "complete", int(which) if script.pending:
            script.step(which % len(script.pending))
        case "fail", int(which) if script.pending:
            effect = script.pending[which % len(script.pending)]
            script.pending.remove(effect)
            if isinstance(effect, events.Commit):
                script.feed(events.CommitFailed(effect.token, RegistryAway("registry away")))
            else:
                script.feed(events.Unanswered(effect.token, "no answer"))
        case "never", int(which) if script.pending:
            del script.pending[which % len(script.pending)]
        case "mute", (name, message):
            script.hosts[name].mute ^= {message}
        case "monitor", (name, how):
            script.monitors[name].mute = how == "mute"
            script.monitors[name].waits_for = "1 publisher still there" * (how == "full")
        case "leave", str(name):
            script.report(script.hosts[name], leaving=True)
        case "report", str(name):
            script.report(script.hosts[name])
        case "wait", float(seconds):
            script.pass_time(seconds)
        case "registry", "suspend":
            script.feed(events.RegistryLost())
        case "registry", "back":
            leads = script.machine.leads
            script.feed(events.RegistryBack(script.snapshot() if leads else None))
        case "registry", "lost":
            script.feed(events.RegistryLost(session_ended=True))
        case "registry", "follow":
            script.feed(events.Following(OTHER))
        case "registry", "elect":
            script.elect()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=40))
def test_every_request_is_answered_once_in_any_interleaving(
    steps: list[tuple[str, object]],
) -> None:
    script = Script(PaperHost("h1", exchange_max=3), PaperHost("h2", epoch=2))
    peers: list[int] = []
    for kind, value in steps:
        act(script, peers, kind, value)
        assert all(len(script.answers[peer]) <= 1 for peer in peers)
    # Nothing that is still under way ever comes back; the bounds alone must answer everybody.
    script.pending.clear()
    for _ in range(40):
        script.pass_time(20)
        script.pending.clear()
    assert all(len(script.answers[peer]) == 1 for peer in peers)
    if not script.machine.hosts.draining():  # else the leader tries again and again
        # Which logs have gone it tries to write down until it can.
        assert script.machine.operations.queues <= {LOGS}
        assert script.machine.queues.reserved == {}
    # And a later leader can do everything with what was left behind.
    for host in script.hosts.values():
        host.mute.clear()
    script.elect()
    for host in script.hosts.values():
        host.epoch += 10  # a later manager: what the one before wanted holds no more
        script.report(host)
        script.settle()
        assert script.ask(2111, Host=host.name)["RESULT"] == 0
    for _ in range(3):
        for host in script.hosts.values():
            script.report(host)
        script.settle()
        script.pass_time(1)
    script.settle()
    running = [queue.record for queue in script.machine.queues if queue.running]
    for record in running:
        assert {exchange.state for exchange in record.exchanges} == {"created"}
        origins = {exchange.origin for exchange in record.exchanges}
        assert origins <= {"creation", "manual", "scaling"}
    for name in "ab":
        assert script.ask(2001, QName=name)["RESULT"] in {0, 1101}
        assert script.ask(2003, QName=name, Host="h2")["RESULT"] == 0
        located = script.ask(2000, port=5000, QName=name)
        assert located["Monitor_host"] == script.hosts["h2"].children[name, 0].control
    assert {key for key in script.hosts["h2"].children if key[1]} == {("a", 1), ("b", 1)}
