"""What a console is told when it starts: which cluster, for whom, and where else there is more."""

from __future__ import annotations

import ipaddress
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from roq.errors import ConfigError

PORT: Final = 7080
TOKEN_CHARACTERS_MIN: Final = 16
TOKEN_BYTES_MAX: Final = 4096
PLACES: Final = frozenset({"queue", "exchange", "host", "group", "type"})
"""What a link may name in braces."""


@dataclass(frozen=True, slots=True)
class MetricLink:
    """A link to where metrics are shown, such as a dashboard.

    Attributes:
        name: what people read.
        template: a URL with `{queue}`, `{exchange}`, `{host}`, `{group}` or `{type}` in it.
        places: those that are in it.
    """

    name: str
    template: str
    places: frozenset[str]

    @classmethod
    def of(cls, text: str) -> MetricLink:
        """The link in `NAME=URL`.

        Raises:
            ConfigError: not of that form; says what is wrong.
        """
        name, _, template = text.partition("=")
        if not name.strip() or not template.startswith(("http://", "https://")):
            raise ConfigError(f"a metric link is NAME=URL with http or https, not {text!r}")
        try:
            parts = [
                part for _, part, _, _ in string.Formatter().parse(template) if part is not None
            ]
        except ValueError as error:
            raise ConfigError(f"metric link {name!r}: {error}") from None
        unknown = [part for part in parts if part not in PLACES]
        if unknown:
            known = ", ".join(f"{{{place}}}" for place in sorted(PLACES))
            raise ConfigError(f"metric link {name!r} names {{{unknown[0]}}}; there are {known}")
        return cls(name.strip(), template, frozenset(parts))

    def url(self, places: Mapping[str, str]) -> str:
        """The link of this place; empty: it is not about such a place."""
        if self.places != places.keys():
            return ""
        return self.template.format(**{name: quote(text, safe="") for name, text in places.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """What a console is told.

    Without a token everybody who reaches it may operate the cluster, so it answers then to
    connections from this machine alone, under a name of this machine.

    Attributes:
        cluster: addresses as `roq.connect` takes them.
        bind, port: where it listens.
        token: who knows it may change things; empty: nobody is asked.
        reader_token: who knows it may look.
        read_only: nobody may change things, whatever they know.
        names: further host names under which browsers may ask for it, without a port.
        links: where metrics are shown.
        jobs: database of jobs as `roq.Jobs` takes it; empty: pages of jobs are hidden.

    Raises:
        ConfigError: it is to listen to other machines without a token; or one is easily guessed.
    """

    cluster: str
    bind: str = "127.0.0.1"
    port: int = PORT
    token: str = field(default="", repr=False)
    reader_token: str = field(default="", repr=False)
    read_only: bool = False
    names: tuple[str, ...] = ()
    links: tuple[MetricLink, ...] = ()
    jobs: str = ""

    def __post_init__(self) -> None:
        if not self.guarded and not is_loopback(self.bind):
            raise ConfigError(
                f"a console at {self.bind} can be reached by other machines, and whoever reaches "
                "it may operate the cluster: name a file with a token, or bind to 127.0.0.1"
            )
        for token in (self.token, self.reader_token):
            if token and len(token) < TOKEN_CHARACTERS_MIN:
                raise ConfigError(
                    f"a token has {TOKEN_CHARACTERS_MIN} characters at least, so that nobody "
                    "guesses it: `openssl rand -hex 24` makes one"
                )
        if self.token and self.token == self.reader_token:
            raise ConfigError("the token for reading must be another one than that for operating")

    @property
    def guarded(self) -> bool:
        """Whether it asks for a token."""
        return bool(self.token or self.reader_token)

    def links_of(self, **places: str) -> list[tuple[str, str]]:
        """Name and URL of each link that is about such a place."""
        found = ((link.name, link.url(places)) for link in self.links)
        return [(name, url) for name, url in found if url]


def read_token(path: Path) -> str:
    """The token in a file: its first line.

    Raises:
        ConfigError: it cannot be read, or is empty.
    """
    try:
        with path.open("rb") as file:
            lines = file.read(TOKEN_BYTES_MAX).decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain ASCII"
        raise ConfigError(f"the token file {path} cannot be read: {reason}") from None
    token = lines[0].strip() if lines else ""
    if not token:
        raise ConfigError(f"the token file {path} has no token in its first line")
    return token


def is_loopback(host: str) -> bool:
    """Whether a host, without a port, is this machine whatever a name server says."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
