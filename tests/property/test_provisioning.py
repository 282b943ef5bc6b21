"""Whatever a provider does, everybody is answered, no host in use is given back, and none leaks."""

from __future__ import annotations

from gcm_script import OTHER, PaperHost, Script
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roq.gcm import events
from roq.gcm.events import CallProvider, CreateHost, GivenUp, ListHosts, RemoveHost
from roq.gcm.provision.hosts import ProvisionSettings
from roq.protocol import documents
from roq.protocol.control import ScaleIn, ScaleOut
from roq.provider.port import HostState, ProvidedHost
from roq.timing import PROVISION_ANSWER_SECONDS

HOSTS_MAX = 2
SETTINGS = ProvisionSettings(hosts_max=HOSTS_MAX, register_seconds=10, release_seconds=20)
QUEUES = st.sampled_from(["a", "b"])
STEPS = st.one_of(
    st.tuples(st.just("grow"), QUEUES, st.integers(1, 3)),
    st.tuples(st.just("grow"), QUEUES, st.integers(1, 3)),
    st.tuples(st.just("shrink"), QUEUES, st.integers(1, 5)),
    st.tuples(st.sampled_from([2001, 2002, 2005, 2003]), QUEUES),
    # The call, whether it is carried out, and what is told of it.
    st.tuples(
        st.just("call"),
        st.integers(0, 3),
        st.booleans(),
        st.sampled_from(["told", "told", "told", "fails", "too slow"]),
    ),
    st.tuples(st.just("report"), st.booleans()),
    st.tuples(st.just("report"), st.booleans()),
    st.tuples(st.just("ends"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 5.0, 15.0, 40.0])),
    st.tuples(st.just(2002), QUEUES),
    st.tuples(st.just("rest"), st.sampled_from([3, 25])),
    st.tuples(st.just("rest"), st.just(25)),
    st.tuples(st.just("lead"), st.sampled_from(["follow", "elect", "suspend", "back"])),
)


class Yard:
    """A manager, one host that is full, and a provider of paper that has made some."""

    def __init__(self, hosts: int) -> None:
        self.script = Script(PaperHost("h1", exchange_max=2), provision=SETTINGS)
        self.made: dict[str, ProvidedHost] = {}
        self.count = 0
        self.askers: list[int] = []
        for name in "ab":
            self.script.ask(2003, QName=name, Host="h1")
        for _ in range(hosts):
            self.scale("grow", "a", self.count + 1)
            self.rest(2)

    def call(self, call: CallProvider, how: str, *, done: bool) -> None:
        """Let the provider work on a call; what it says need not be what it did."""
        match call.action:
            case CreateHost(name) if how == "told" or (how == "too slow" and done):
                answer: events.ProviderAnswer = self._create(name)
            case RemoveHost() if how == "told" or done:
                answer = self._remove(call.action)
            case ListHosts():
                answer = tuple(self.made.values())
            case _:
                answer = "not this time"
        if how != "told":
            answer = GivenUp(60.0) if how == "too slow" else "it has raised"
        self.script.feed(events.ProviderAnswered(call.token, answer))
        self.script.settle()

    def _create(self, name: str) -> ProvidedHost:
        self.count += 1
        host = PaperHost(f"p{self.count}", epoch=10 + self.count, exchange_max=1)
        self.script.hosts[host.name] = host
        self.made[name] = ProvidedHost(name=name, host=host.name, handle=f"handle-{name}")
        assert len(self.made) <= HOSTS_MAX
        return self.made[name]

    def _remove(self, action: RemoveHost) -> None:
        assert action.handle == f"handle-{action.name}"
        gone = self.made.pop(action.name, None)
        if gone is None:
            return
        if gone.state is HostState.RUNNING:
            queues = self.script.machine.queues
            assert not any(gone.host in queue.record.hosts for queue in queues), "it was in use"
        self.script.hosts.pop(gone.host, None)

    def report(self, *, provided: bool = True) -> None:
        for name, host in list(self.script.hosts.items()):
            if provided or name == "h1":
                self.script.report(host)
        self.script.settle()

    def scale(self, kind: str, name: str, number: int) -> None:
        queue = self.script.machine.queues.get(name)
        queue_id = queue.record.queue_id if queue is not None else b"none"
        message = (
            ScaleOut(id=1, queue=name, queue_id=queue_id, transaction=str(number), reason="load")
            if kind == "grow"
            else ScaleIn(id=1, queue=name, queue_id=queue_id, number=number, reason="idle")
        )
        self.askers.append(self.script.send_raw(documents.encode(message), port=5000))
        self.script.settle()

    def end(self, which: int) -> None:
        """The host manager of a provided host ends, and with it what it has started."""
        names = [name for name, host in self.made.items() if host.state is HostState.RUNNING]
        if names:
            name = names[which % len(names)]
            told = self.made[name]
            self.made[name] = ProvidedHost(
                name=name, host=told.host, handle=told.handle, state=HostState.ENDED
            )
            self.script.hosts.pop(told.host, None)

    def lead(self, what: str) -> None:
        match what:
            case "follow":
                self.script.feed(events.Following(OTHER))
                self.script.calls.clear()
            case "elect":
                self.script.elect()
            case "suspend":
                self.script.feed(events.RegistryLost())
            case "back":
                leads = self.script.machine.leads
                self.script.feed(events.RegistryBack(self.script.snapshot() if leads else None))
        self.script.settle()

    def rest(self, seconds: float) -> None:
        """Time passes; everything works as it should."""
        end = self.script.now + seconds
        while self.script.now < end:
            self.report()
            while self.script.calls:
                self.call(self.script.calls.pop(0), "told", done=True)
            self.script.pass_time(1.0)
            self.script.settle()


def act(yard: Yard, step: tuple[object, ...]) -> None:
    match step:
        case ("grow" | "shrink") as kind, str(name), int(number):
            yard.scale(kind, name, number)
        case "call", int(which), bool(done), str(how):
            calls = yard.script.calls
            if calls:
                yard.call(calls.pop(which % len(calls)), how, done=done)
        case "report", bool(provided):
            yard.report(provided=provided)
        case "ends", int(which):
            yard.end(which)
        case "wait", float(seconds):
            yard.script.pass_time(seconds)
            yard.script.settle()
        case "rest", int(seconds):
            yard.rest(seconds)
        case "lead", str(what):
            yard.lead(what)
        case int(number), str(name):
            yard.askers.append(yard.script.send(number, QName=name, Host="h1"))
            yard.script.settle()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, HOSTS_MAX), st.lists(STEPS, min_size=4, max_size=25))
def test_whatever_a_provider_does_all_are_answered_and_nothing_is_left_behind(
    hosts: int, steps: list[tuple[object, ...]]
) -> None:
    yard = Yard(hosts)
    for step in steps:
        act(yard, step)
        assert all(len(yard.script.answers[peer]) <= 1 for peer in yard.askers)
    # The provider hangs: the bounds alone answer whoever waits.
    yard.script.pass_time(PROVISION_ANSWER_SECONDS + 1)
    yard.script.settle()
    assert all(len(yard.script.answers[peer]) == 1 for peer in yard.askers)
    # A later leader, before whom everything works again, gives back what nobody needs.
    yard.script.calls.clear()
    yard.script.elect()
    yard.rest(3)
    for name in "ab":
        yard.script.ask(2001, QName=name)
    yard.rest(200)
    assert yard.made == {}
    assert yard.script.machine.provisioning.names() == frozenset()
    assert yard.script.machine.hosts.closed == set()
