"""Hosts vanish and return, leaders change in the middle of anything: in the end all queues run."""

from collections import defaultdict

import pytest
from gcm_script import OTHER, PaperHost, Script
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roq.errors import RegistryAway
from roq.gcm import events
from roq.protocol.control import StartExchange, StartMonitor, StopQueue
from roq.protocol.public import DURABILITIES
from roq.protocol.reports import ChildInfo

QUEUES = st.sampled_from(["a", "b"])
HOSTS = st.sampled_from(["h1", "h2", "h3"])
REQUESTS = st.one_of(
    st.tuples(st.sampled_from([2001, 2002, 2005, 2010, 2010]), QUEUES),
    st.tuples(st.just(2003), QUEUES, HOSTS),
    st.tuples(st.just(2004), QUEUES, HOSTS),
)
STEPS = st.one_of(
    REQUESTS.map(lambda request: ("request", request)),
    st.integers(0, 5).map(lambda which: ("complete", which)),
    st.integers(0, 5).map(lambda which: ("complete", which)),
    st.integers(0, 5).map(lambda which: ("unseen", which)),
    st.integers(0, 5).map(lambda which: ("lost", which)),
    HOSTS.map(lambda name: ("vanish", name)),
    HOSTS.map(lambda name: ("kill manager", name)),
    HOSTS.map(lambda name: ("expire", name)),
    HOSTS.map(lambda name: ("return", name)),
    HOSTS.map(lambda name: ("report", name)),
    st.tuples(HOSTS, QUEUES, st.integers(0, 2)).map(lambda what: ("die", what)),
    st.tuples(HOSTS, QUEUES, st.integers(0, 2)).map(lambda what: ("fail", what)),
    st.tuples(HOSTS, st.sampled_from([StartMonitor, StartExchange, StopQueue])).map(
        lambda what: ("mute", what)
    ),
    st.sampled_from([0.5, 1.5, 4.0]).map(lambda seconds: ("live", seconds)),
    st.sampled_from([0.5, 4.0]).map(lambda seconds: ("wait", seconds)),
    st.sampled_from(["suspend", "back", "follow", "elect", "elect"]).map(
        lambda what: ("leader", what)
    ),
)


class Watched(PaperHost):
    """A host that notes under which epochs processes begin."""

    begun: defaultdict[tuple[bytes, int], list[int]]
    homes: defaultdict[tuple[bytes, int], set[str]]

    def restart(self, queue: str, queue_id: bytes, number: int) -> ChildInfo:
        child = super().restart(queue, queue_id, number)
        self.begun[queue_id, number].append(child.epoch)
        self.homes[queue_id, number].add(self.name)
        return child


def act(script: Script, durability: str, kind: str, value: object) -> None:  # noqa: C901, PLR0912
    match kind, value:
        case "request", (number, name, *more):
            fields: dict[str, object] = dict(zip(["Host"], more, strict=False))
            if number in {2003, 2010}:
                fields["Durability"] = durability
            script.send(number, QName=name, **fields)
        case "complete", int(which) if script.pending:
            script.step(which % len(script.pending))
        case "unseen", int(which) if script.pending:
            come_to_nothing(script, which, done=True)
        case "lost", int(which) if script.pending:
            come_to_nothing(script, which, done=False)
        case "vanish", str(name):
            script.vanish(name)
        case "kill manager", str(name):
            script.vanish(name, with_children=False)
        case "expire", str(name):
            script.expire_node(name)
        case "return", str(name) if not script.hosts[name].up:
            script.come_back(name)
        case "report", str(name) if script.hosts[name].up:
            script.report(script.hosts[name])
        case "die", (name, queue, number):
            script.hosts[name].children.pop((queue, number), None)
        case "fail", (name, queue, number) if (queue, number) in script.hosts[name].children:
            script.hosts[name].fail(queue, number, "ended too often")
        case "mute", (name, message):
            script.hosts[name].mute ^= {message}
        case "live", float(seconds):
            script.live(seconds)
        case "wait", float(seconds):
            script.pass_time(seconds)
        case "leader", what:
            lead(script, what)


def come_to_nothing(script: Script, which: int, *, done: bool) -> None:
    """The leader gets no answer, whether something was done or not."""
    effect = script.pending[which % len(script.pending)]
    script.pending.remove(effect)
    if isinstance(effect, events.AskHost):
        if done:
            script.answerer(effect.endpoint).answer(effect.message)
        script.feed(events.Unanswered(effect.token, "no answer"))
        return
    if done and isinstance(effect, events.Commit):
        script.commit(effect)
    script.feed(events.CommitFailed(effect.token, RegistryAway("registry away")))
    script.feed(events.RegistryBack(script.snapshot() if script.machine.leads else None))


def lead(script: Script, what: object) -> None:
    match what:
        case "suspend":
            script.feed(events.RegistryLost())
        case "back":
            script.feed(events.RegistryBack(script.snapshot() if script.machine.leads else None))
            script.feed(events.HostsPresent(frozenset(script.nodes)))
        case "follow":
            script.pending.clear()
            script.feed(events.Following(OTHER))
        case "elect":
            script.pending.clear()
            script.feed(events.Following(OTHER))
            script.elect()


def calm_down(script: Script) -> None:
    """Nothing fails any more, and a while passes."""
    for host in script.hosts.values():
        host.mute.clear()
        if not host.up:
            script.come_back(host.name)
    script.feed(events.HostsPresent(frozenset(script.nodes)))
    if not script.machine.leads:
        script.elect()
    script.feed(events.RegistryBack(script.snapshot()))
    script.live(45)
    for queue in script.machine.queues:
        if queue.running:
            assert script.ask(2005, QName=queue.name)["RESULT"] == 0
    script.live(45)


@pytest.mark.parametrize("durability", DURABILITIES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_in_the_end_every_queue_runs_once_and_on_hosts_that_live(
    durability: str,
    steps: list[tuple[str, object]],
) -> None:
    script = Script(*(Watched(f"h{number}", epoch=number) for number in (1, 2, 3)))
    begun: defaultdict[tuple[bytes, int], list[int]] = defaultdict(list)
    homes: defaultdict[tuple[bytes, int], set[str]] = defaultdict(set)
    for host in script.hosts.values():
        assert isinstance(host, Watched)
        host.begun = begun
        host.homes = homes
    script.ask(2003, QName="a", Host="h1", Durability=durability)
    for kind, value in steps:
        act(script, durability, kind, value)
    calm_down(script)
    runs = {
        (child.queue_id, number): (host.name, child.state, child.epoch)
        for host in script.hosts.values()
        for (_, number), child in host.children.items()
    }
    assert len(runs) == sum(len(host.children) for host in script.hosts.values()), "nothing twice"
    wanted = {}
    for record in script.snapshot().queues:
        assert record.state in {"running", "stopped"}
        if record.state != "running":
            continue
        wanted[record.queue_id, 0] = (record.host, "running", record.epoch)
        for exchange in record.exchanges:
            assert exchange.state == "created"
            wanted[record.queue_id, exchange.number] = (
                exchange.host, "running", exchange.epoch
            )  # fmt: skip
    assert runs == wanted
    for epochs in begun.values():
        assert epochs == sorted(set(epochs)), "no process begins under an epoch of before"
    if durability != "none":
        for (_, number), hosts in homes.items():
            assert number == 0 or len(hosts) == 1, "an exchange runs where its log is"
    for queue in script.machine.queues:
        assert script.machine.repairs.reasons(queue) == []
