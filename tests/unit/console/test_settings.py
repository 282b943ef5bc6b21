"""For whom a console is, and where it links to."""

from __future__ import annotations

from pathlib import Path

import pytest

from roq.console.settings import ConsoleSettings, MetricLink, is_loopback, read_token
from roq.errors import ConfigError

TOKEN = "0123456789abcdef"  # noqa: S105 - of a test


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("localhost", True), ("[::1]", True),
     ("0.0.0.0", False), ("10.0.0.1", False), ("localhost.evil.example", False), ("", False)],
)  # fmt: skip
def test_loopback_is_known_by_its_address_not_by_a_name_server(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_other_machines_want_a_token() -> None:
    with pytest.raises(ConfigError, match="name a file with a token"):
        ConsoleSettings(cluster="a:1", bind="0.0.0.0")
    assert ConsoleSettings(cluster="a:1", bind="0.0.0.0", token=TOKEN).guarded
    assert ConsoleSettings(cluster="a:1", bind="0.0.0.0", reader_token=TOKEN).guarded
    assert TOKEN not in repr(ConsoleSettings(cluster="a:1", token=TOKEN))


def test_a_token_that_can_be_guessed_is_none() -> None:
    with pytest.raises(ConfigError, match="16 characters"):
        ConsoleSettings(cluster="a:1", token="secret")  # noqa: S106 - of a test
    with pytest.raises(ConfigError, match="another one"):
        ConsoleSettings(cluster="a:1", token=TOKEN, reader_token=TOKEN)


def test_a_token_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\nof the console\n")
    assert read_token(path) == TOKEN
    path.write_text("\n")
    with pytest.raises(ConfigError, match="no token"):
        read_token(path)
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(ConfigError, match="ASCII"):
        read_token(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(tmp_path / "nothing")


def test_links_are_on_the_pages_that_they_are_about() -> None:
    links = (MetricLink.of("G=https://g/d?q={queue}"), MetricLink.of("H=http://g/{host}"))
    settings = ConsoleSettings(cluster="a:1", links=links)
    assert settings.links_of(queue="a&b") == [("G", "https://g/d?q=a%26b")]
    assert settings.links_of(queue="a", exchange="x1") == []
    assert ConsoleSettings(cluster="a:1").links_of(queue="a") == []


@pytest.mark.parametrize(
    "text",
    ["https://g", "G=javascript:alert(1)", "=https://g", "G=https://g/{topic}", "G=https://g/{"],
)
def test_what_is_no_link_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="metric link"):
        MetricLink.of(text)
