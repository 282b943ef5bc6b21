"""Settings of services: what the queue defines, and what clients choose beside it."""

from __future__ import annotations

import msgspec
from exchange_driver import Publisher, exchange
from service_party import SETTINGS, Party, pass_time

from roq.protocol import documents
from roq.protocol.requesting import (
    ATTEND,
    UNASKED,
    Attended,
    ServiceSettings,
)

KEPT = ServiceSettings(keep_result=9.0, delay=3.0, chosen=True)


def test_what_the_queue_defines_holds_and_what_clients_choose_beside_it() -> None:
    there = exchange()
    there.core.consumers.services.define({"s": {"keep_result": 60.0}, "*": {"send_attempts": 9}})
    asker, instance = Party(there, "asker"), Party(there, "instance")
    found = asker.attend().settings
    assert (found.keep_result, found.send_attempts, found.delay) == (60.0, 9, 0.0)
    found = asker.attend(settings=KEPT).settings
    assert (found.keep_result, found.delay) == (60.0, 3.0)
    assert found.defined == ("keep_result", "send_attempts")
    group = msgspec.structs.replace(SETTINGS, service=ServiceSettings(delay=7.0, chosen=True))
    joined = instance.join(settings=group).settings.service
    assert joined is not None
    assert (joined.keep_result, joined.send_attempts, joined.delay) == (60.0, 9, 7.0)
    assert instance.report().settings == joined
    assert asker.attend(service="t").settings.send_attempts == 9


def test_what_is_defined_later_is_in_force_at_once_and_who_attends_is_told() -> None:
    there = exchange()
    publisher = Publisher(there)
    publisher.hello()
    asker, other = Party(there, "asker"), Party(there, "other")
    asker.attend(settings=KEPT)
    other.attend(service="t", publisher=b"")
    publisher.send(b"s/do")
    there.core.consumers.services.define({"s": {"result_within": 2.0, "delay": 1.0}})
    asker.look()
    told = documents.decode(asker.take(ATTEND), Attended)
    assert (told.id, told.service, told.settings.keep_result) == (UNASKED, "s", 9.0)
    assert (told.settings.result_within, told.settings.delay) == (2.0, 1.0)
    other.look()
    assert other.told == [], "it does not attend this one"
    pass_time(there, 2.5)
    assert [each.state for each in asker.ends()] == ["late"], "also what is open"
    there.core.consumers.services.define({})
    asker.look()
    settings = documents.decode(asker.take(ATTEND), Attended).settings
    assert (settings.keep_result, settings.delay, settings.result_within) == (9.0, 0.0, 60.0)
    there.core.consumers.services.define({})
    asker.look()
    assert asker.told == [], "nothing has changed"


def test_what_a_client_says_to_be_defined_is_not() -> None:
    there = exchange()
    asker = Party(there, "asker")
    given = msgspec.structs.replace(KEPT, defined=("keep_result",))
    assert asker.attend(settings=given).settings == KEPT


def test_an_exchange_that_is_not_told_yet_goes_on_with_what_was_defined() -> None:
    there = exchange()
    services = there.core.consumers.services
    services.define({"s": {"keep_result": 60.0}})
    asker = Party(there, "asker")
    asker.attend()
    services.defined = None  # as a process that has the groups of the one before
    found = asker.attend(settings=KEPT).settings
    assert (found.keep_result, found.delay, found.defined) == (60.0, 3.0, ("keep_result",))
