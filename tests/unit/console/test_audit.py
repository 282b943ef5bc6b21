"""What was done is told in the log and on the page."""

from __future__ import annotations

import logging

import pytest

from roq.console.audit import DONE, FAILED, RECORDS_MAX, Audit


def test_a_deed_is_told_when_it_begins_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    audit = Audit()
    deed = audit.begin("operator at 127.0.0.1", "Stop queue load", {"queue": "load"})
    assert (deed.state, audit.deeds()) == ("running", [deed])
    audit.end(deed, DONE, "queue load is stopped")
    ended = audit.find(str(deed.number))
    assert ended is not None
    assert (ended.state, ended.result) == (DONE, "queue load is stopped")
    audit.end(deed, FAILED, "no")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "INFO", "WARNING"]
    text = caplog.messages[1]
    assert text == "operator at 127.0.0.1: Stop queue load: done: queue load is stopped"
    assert vars(caplog.records[1])["event"] == "console_action_done"


def test_the_last_ones_are_kept_the_newest_first() -> None:
    audit = Audit()
    for _ in range(RECORDS_MAX + 1):
        audit.begin("a", "b", {})
    numbers = [deed.number for deed in audit.deeds()]
    assert (numbers[0], numbers[-1], len(numbers)) == (RECORDS_MAX + 1, 2, RECORDS_MAX)
    assert audit.find("1") is None
    assert audit.find("<b>") is None
