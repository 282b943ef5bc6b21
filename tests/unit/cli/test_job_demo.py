"""The demo of jobs finds its console by what that says."""

from __future__ import annotations

from roq.cli.job_demo import _url


def test_a_console_that_serves_is_found_among_its_lines() -> None:
    assert _url("") is None
    assert _url("ready\n") is None
    said = 'INFO begun\nready {"url":"http://127.0.0.1:7/"}\nINFO serving\n'
    assert _url(said) == "http://127.0.0.1:7/"
