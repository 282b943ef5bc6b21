import json
import logging
from collections.abc import Iterator

import pytest

from roq.runtime import structured_logs


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_names_time_level_process_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    structured_logs.configure("info", "text", process="gcm")
    logging.getLogger("roq.x").info("queue %s created", "q", extra={"event": "created", "host": 1})
    line = capsys.readouterr().err
    assert "INFO    gcm: queue q created host=1" in line
    assert line[:2] == "20"


def test_json_is_one_document_a_line_with_the_event(capsys: pytest.CaptureFixture[str]) -> None:
    structured_logs.configure("info", "json", process="gcm")
    logging.getLogger("roq.x").warning("two\nlines", extra={"event": "e"})
    logging.getLogger("roq.x").debug("not shown")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    document = json.loads(lines[0])
    assert (document["event"], document["message"]) == ("e", "two\nlines")
    assert (document["level"], document["process"]) == ("warning", "gcm")


def test_what_a_peer_said_cannot_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    structured_logs.configure("info", "text", process="gcm")
    logging.getLogger("roq.x").info("refused %s", "a\x1b[2J\r\n2026 INFO gcm: forged")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("refused a\\x1b[2J\\x0d")
    assert lines[1:] == ["  2026 INFO gcm: forged"]


def test_records_before_the_settings_are_known_come_out_as_these_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    structured_logs.hold()
    logging.getLogger("roq.x").info("settings read")
    assert capsys.readouterr().err == ""
    structured_logs.configure("info", "json", process="gcm")
    assert json.loads(capsys.readouterr().err)["message"] == "settings read"


def test_an_exception_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    structured_logs.configure("info", "json", process="p")
    try:
        int("why")
    except ValueError:
        logging.getLogger("roq.x").exception("failed")
    assert "ValueError: invalid literal" in json.loads(capsys.readouterr().err)["exception"]


def test_one_line_per_key_and_interval_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = structured_logs.RateLimited(logging.getLogger("roq.test"), seconds=5)
    with caplog.at_level("WARNING"):
        for now in (0.0, 1.0, 2.0, 6.0):
            limited.warning("a", now, "bad %s", "frame")
        limited.warning("b", 2.0, "other")
    assert caplog.messages == ["bad frame", "bad frame (2 more like this)", "other"]


def test_lines_of_one_event_are_limited_each_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    limited = structured_logs.RateLimited(logging.getLogger("roq.test"), seconds=5)
    with caplog.at_level("WARNING"):
        for text in ("nobody leads", "this host belongs elsewhere", "nobody leads"):
            limited.warning(text, 1.0, text, event="leader_away")
    assert caplog.messages == ["nobody leads", "this host belongs elsewhere"]
    assert [vars(record)["event"] for record in caplog.records] == ["leader_away"] * 2
