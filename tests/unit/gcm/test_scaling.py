"""A queue grows and shrinks because its monitor asks for it."""

import pytest
from gcm_scaling import answer_of, ask, heard, less, numbers, out, rule, send, wake
from gcm_script import OTHER, PaperHost, Script

from roq.gcm import events
from roq.gcm.provision.hosts import ProvisionSettings
from roq.protocol.control import (
    Done,
    ElasticityRequest,
    Failure,
    ScaledOut,
    StartExchange,
    StopQueue,
)
from roq.provider.port import ProvidedHost


@pytest.fixture
def script() -> Script:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2))
    script.ask(2003, QName="q", Host="h1")
    return script


# --- out ------------------------------------------------------------------------------------------


def test_a_monitor_gets_one_more_exchange_on_a_host_that_has_none_of_the_queue(
    script: Script,
) -> None:
    script.ask(2003, QName="other", Host="h2")  # so that h2 is no less busy than h1
    made = ask(script, out(script))
    assert made == ScaledOut(id=7, number=2, host="h2")
    rows = script.ask(2103, QName="q")["Exchanges"]
    assert [row["Origin"] for row in rows] == ["creation", "scaling"]
    assert ("q", 2) in script.hosts["h2"].children
    assert ask(script, out(script, "t2")) == ScaledOut(id=7, number=3, host="h1")


def test_the_same_transaction_makes_one_exchange_even_under_a_later_leader(
    script: Script,
) -> None:
    peers = [send(script, out(script)) for _ in range(3)]
    script.settle()
    assert {answer_of(script, peer).number for peer in peers} == {2}
    script.elect()
    wake(script)
    assert ask(script, out(script)).number == 2
    assert numbers(script) == [1, 2]


def test_a_queue_grows_no_further_than_it_may(script: Script) -> None:
    assert [ask(script, out(script, f"t{n}")).number for n in range(3)] == [2, 3, 4]
    refused = ask(script, out(script, "t4"))
    assert isinstance(refused, Failure)
    assert (refused.id, refused.RESULT, refused.CODE) == (7, 1101, "no_capacity")
    assert "at most 4" in refused.COMMENT
    assert ask(script, out(script, "t2")).number == 4
    rule(script, AUTOSCALING_ROQ_XCHANGE_MAX=5)
    assert ask(script, out(script, "t4")).number == 5


def test_a_queue_with_a_limit_of_one_exchange_never_grows_by_itself(script: Script) -> None:
    script.ask(2001, QName="q")
    script.ask(2003, QName="q", Host="h1", Limits={"exchanges_max": 1})
    assert ask(script, out(script)).CODE == "no_capacity"
    assert script.ask(2004, QName="q", Host="h2")["Number"] == 2


def test_a_stopped_queue_does_not_grow(script: Script) -> None:
    request = out(script)
    script.ask(2002, QName="q")
    assert ask(script, request).CODE == "queue_stopped"


def test_without_room_anywhere_the_monitor_is_told_why() -> None:
    script = Script(PaperHost("h1", exchange_max=1))
    script.ask(2003, QName="q", Host="h1")
    refused = ask(script, out(script))
    assert (refused.CODE, "h1 is full" in refused.COMMENT) == ("no_capacity", True)


@pytest.mark.parametrize("how", ["refuse", "mute"])
def test_an_exchange_that_does_not_start_is_undone_and_the_request_may_be_repeated(
    script: Script, how: str
) -> None:
    getattr(script.hosts["h2"], how).add(StartExchange)
    refused = ask(script, out(script))
    assert isinstance(refused, Failure)
    assert (refused.id, numbers(script)) == (7, [1])
    getattr(script.hosts["h2"], how).clear()
    assert ask(script, out(script)).number == 3


# --- in -------------------------------------------------------------------------------------------


def test_what_scaling_has_made_it_may_remove(script: Script) -> None:
    ask(script, out(script))
    assert ask(script, less(script, 2)) == Done(id=8)
    assert numbers(script) == [1]
    assert ("q", 2) not in script.hosts["h2"].children
    assert ask(script, less(script, 2)) == Done(id=8)  # asked again, as the answer was lost


def test_what_was_made_by_hand_scaling_leaves_alone(script: Script) -> None:
    script.ask(2004, QName="q", Host="h2")
    for number in (1, 2):
        refused = ask(script, less(script, number))
        assert isinstance(refused, Failure)
        assert (refused.id, "not made by scaling" in refused.COMMENT) == (8, True)
    assert numbers(script) == [1, 2]


def test_a_queue_keeps_as_many_exchanges_as_its_rules_say(script: Script) -> None:
    rule(script, AUTOSCALING_ROQ_XCHANGE_MIN=2)
    ask(script, out(script))
    assert "keeps 2 exchanges" in ask(script, less(script, 2)).COMMENT
    rule(script)
    assert ask(script, less(script, 2)) == Done(id=8)


def test_the_last_exchange_stays_even_if_scaling_has_made_it(script: Script) -> None:
    ask(script, out(script))
    assert script.ask(2100, QName="q", Exchange="x1")["RESULT"] == 0
    assert "keeps 1 exchange;" in ask(script, less(script, 2)).COMMENT


def test_a_host_that_does_not_answer_does_not_hold_the_end_of_an_exchange_up(
    script: Script,
) -> None:
    ask(script, out(script))
    script.hosts["h2"].mute.add(StopQueue)
    assert ask(script, less(script, 2)) == Done(id=8)
    script.hosts["h2"].mute.clear()
    wake(script)
    assert ("q", 2) not in script.hosts["h2"].children


# --- what a monitor is told -----------------------------------------------------------------------


def test_a_queue_without_rules_grows_to_what_its_limits_say(script: Script) -> None:
    script.ask(2003, QName="small", Host="h1", Limits={"exchanges_max": 2})
    for name, most in (("q", 4), ("small", 2)):
        request = ElasticityRequest(id=5, queue=name, queue_id=script.record(name).queue_id)
        assert ask(script, request).rules.exchanges_max == most


# --- provided hosts -------------------------------------------------------------------------------


def provide(script: Script) -> ProvidedHost:
    """The provider tells that it has no host, is asked for one and makes it."""
    for answer in ((), made := ProvidedHost(name="e1-1", host="p1", handle="h")):
        (call,) = script.calls
        script.calls.clear()
        script.feed(events.ProviderAnswered(call.token, answer))
    script.hosts["p1"] = PaperHost("p1", epoch=2, exchange_max=1)
    script.report(script.hosts["p1"])
    script.settle()
    return made


@pytest.fixture
def full() -> Script:
    """A cluster without room whose queue wants to grow."""
    script = Script(PaperHost("h1", exchange_max=1), provision=ProvisionSettings())
    script.ask(2003, QName="q", Host="h1")
    return script


def test_without_room_a_queue_grows_onto_a_host_that_a_provider_makes(full: Script) -> None:
    peer = send(full, out(full))
    full.settle()
    assert full.answers[peer] == []
    provide(full)
    made = answer_of(full, peer)
    assert isinstance(made, ScaledOut)
    assert (made.id, made.number, made.host) == (7, 2, "p1")
    told = {host["Host"]: host["Provided"] for host in full.ask(2102)["Hosts"]}
    assert told == {"h1": False, "p1": True}


def test_a_queue_that_finds_no_room_is_refused_and_finds_a_provided_host_the_next_time(
    full: Script,
) -> None:
    refused = full.ask(2010, QName="more")
    assert (refused["RESULT"], refused["CODE"]) == (1101, "no_capacity")
    assert "the provider is making a host, try again" in str(refused["COMMENT"])
    provide(full)
    assert full.ask(2010, QName="more")["Host"] == "p1"
    assert not full.calls


def test_an_exchange_that_is_added_by_hand_gets_a_provided_host_likewise(full: Script) -> None:
    refused = full.ask(2004, QName="q")
    assert refused["CODE"] == "no_capacity"
    assert "the provider is making a host, try again" in str(refused["COMMENT"])
    provide(full)
    assert full.ask(2004, QName="q")["Number"] == 2
    assert full.hosts["p1"].started == 1


def test_an_exchange_that_is_added_goes_where_none_of_the_queue_is(script: Script) -> None:
    script.ask(2003, QName="busy", Host="h2")
    script.ask(2003, QName="busier", Host="h2")
    started = script.hosts["h2"].started
    assert script.ask(2004, QName="q")["Number"] == 2
    assert script.hosts["h2"].started == started + 1


def test_who_names_a_host_that_is_full_gets_no_other_one(full: Script) -> None:
    refused = full.ask(2003, QName="more", Host="h1")
    assert refused["CODE"] == "no_capacity"
    assert "provider" not in str(refused["COMMENT"])


def test_without_room_it_is_told_that_the_provider_has_made_all_that_it_may() -> None:
    settings = ProvisionSettings(hosts_max=1)
    full = Script(PaperHost("h1", exchange_max=1), provision=settings)
    full.ask(2003, QName="q", Host="h1")
    full.ask(2010, QName="more")
    provide(full)
    full.ask(2010, QName="more")
    refused = full.ask(2010, QName="third")
    assert refused["CODE"] == "no_capacity"
    assert str(refused["COMMENT"]).endswith("the provider has made all hosts that it may: 1")


def test_a_queue_that_stops_meanwhile_does_not_grow(full: Script) -> None:
    peer = send(full, out(full))
    full.settle()
    full.ask(2002, QName="q")
    provide(full)
    assert answer_of(full, peer).CODE == "queue_stopped"
    assert numbers(full) == [1]


@pytest.mark.parametrize("follows", [True, False])
def test_whoever_waits_for_a_host_hears_of_the_next_election(full: Script, follows: bool) -> None:
    peer = send(full, out(full))
    full.settle()
    if follows:
        full.feed(events.Following(OTHER))
        answer = answer_of(full, peer)
        assert answer.CODE == "not_leader"
        assert answer.ENDPOINT == "tcp://o:5000"
    else:
        full.elect()
        assert answer_of(full, peer).CODE == "not_leader"


def test_a_queue_starts_again_without_a_host_that_was_lost_meanwhile(full: Script) -> None:
    peer = send(full, out(full))
    full.settle()
    provide(full)
    assert answer_of(full, peer).RESULT == 0
    full.ask(2002, QName="q")
    for _ in range(5):
        full.pass_time(1.0)
        full.report(full.hosts["h1"])
    assert full.ask(2005, QName="q")["RESULT"] == 0
    assert numbers(full) == [1]


# --- what its host manager could not tell any more ------------------------------------------------


def begun_on_a_host_whose_manager_dies(script: Script) -> int:
    """The peer that waits for an exchange that was spawned and of which nobody has told."""
    script.ask(2003, QName="other", Host="h2")  # so that its host is unmanaged, and not lost
    script.hosts["h2"].mute.add(StartExchange)
    peer = send(script, out(script))
    script.step()
    script.vanish("h2", with_children=False)
    script.expire_node("h2")
    return peer


def test_an_exchange_whose_host_manager_dies_before_it_has_told_is_there_as_its_monitor_says(
    script: Script,
) -> None:
    peer = begun_on_a_host_whose_manager_dies(script)
    child = script.hosts["h2"].restart("q", script.record("q").queue_id, 2)
    for _ in range(6):
        script.report(script.hosts["h1"])
        script.prove()
        script.pass_time(1.0)
    script.settle()
    assert answer_of(script, peer) == ScaledOut(id=7, number=2, host="h2")
    assert script.record("q").exchange(2).state == "created"
    assert heard(script, (2, child.epoch)).unwanted == []


def test_a_start_on_its_way_to_a_dead_host_manager_is_given_up_when_that_is_known(
    script: Script,
) -> None:
    peer = begun_on_a_host_whose_manager_dies(script)
    asked = [each.endpoint for each in script.pending if isinstance(each, events.AskHost)]
    assert asked == [script.hosts["h2"].control]
    for _ in range(5):
        script.report(script.hosts["h1"])
        script.prove()
        script.pass_time(1.0)
    assert script.hosts["h2"].control not in [
        each.endpoint
        for each in script.pending
        if isinstance(each, events.AskHost) and isinstance(each.message, StartExchange)
    ], "it does not arrive when the host is back"
    script.settle()
    refused = answer_of(script, peer)
    assert isinstance(refused, Failure)
    assert "the manager of host h2 is gone" in refused.COMMENT


def test_an_exchange_of_which_nobody_says_that_it_lives_is_undone_and_later_on_unwanted(
    script: Script,
) -> None:
    peer = begun_on_a_host_whose_manager_dies(script)
    for _ in range(6):
        script.report(script.hosts["h1"])
        script.prove()
        script.pass_time(1.0)
    script.settle()
    assert isinstance(answer_of(script, peer), Failure)
    assert numbers(script) == [1]
    assert heard(script, (1, 1), (2, 1)).unwanted == [2]


def test_an_exchange_that_is_being_healed_counts_among_those_that_a_queue_may_have(
    script: Script,
) -> None:
    rule(script, AUTOSCALING_ROQ_XCHANGE_MAX=2)
    assert ask(script, out(script)).number == 2
    script.vanish("h2")
    script.expire_node("h2")
    refused = ask(script, out(script, "t2"))
    assert isinstance(refused, Failure)
    assert (refused.CODE, numbers(script)) == ("no_capacity", [1, 2])
    script.live(12.0)
    assert ask(script, out(script, "t2")).CODE == "no_capacity"
    assert (numbers(script), script.record("q").exchange(2).host) == ([1, 2], "h1")


def test_a_stop_that_was_asked_of_a_host_that_is_away_is_not_called_back(script: Script) -> None:
    hung_up: list[str] = []
    script.hang_up = hung_up.append  # type: ignore[method-assign]
    assert ask(script, out(script)).number == 2
    script.hosts["h2"].mute.add(StopQueue)
    removal = script.send(2100, QName="q", Exchange="x2")
    while not any(
        isinstance(each, events.AskHost) and isinstance(each.message, StopQueue)
        for each in script.pending
    ):
        script.step()
    script.vanish("h2", with_children=False)
    script.expire_node("h2")
    for _ in range(6):
        script.report(script.hosts["h1"])
        script.pass_time(1.0)
    script.settle()
    assert script.answer(removal)["RESULT"] == 0
    assert hung_up == []
