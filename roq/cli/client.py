"""What the commands share that talk to a cluster: its address, JSON or tables, the connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

import click

import roq
from roq.cli.options import Number, address_given, cluster_after
from roq.errors import InvalidRequest, Unavailable
from roq.runtime.addresses import parse_addresses

ANSWER_SECONDS: Final = 10.0
ADDRESSES_LOOKED_AT_MAX: Final = 3
CHANGE_SECONDS: Final = 30.0
"""As the client has it, which is not loaded before it is needed."""
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster a command speaks to, and how it answers."""

    address: str
    """As `roq.connect` takes it."""
    timeout: float
    """Seconds to wait for an answer."""
    change_timeout: float
    """Seconds to wait until a change is made: processes start and end because of it."""
    as_json: bool

    @contextmanager
    def connect(self) -> Iterator[roq.Cluster]:
        """The cluster, for as long as the block runs.

        Raises:
            Unavailable: no configuration manager answers; the text says what does, if it is known.
        """
        try:
            connected = roq.connect(self.address, timeout=self.timeout)
        except Unavailable as error:
            raise Unavailable(explained(str(error), self.address)) from None
        with connected as cluster:
            yield cluster


def cluster_command(function: Callable[Concatenate[Target, P], T]) -> Callable[P, T]:
    """Give a command `--cluster`, `--timeout` and `--json`, and the function a `Target`."""
    return answered_within(ANSWER_SECONDS)(function)


def change_command(function: Callable[Concatenate[Target, P], T]) -> Callable[P, T]:
    """A `cluster_command` after which processes start or end; its `--timeout` is for that."""
    help_text = f"Seconds to wait until it is done.  [default: {CHANGE_SECONDS:g}]"
    return _with_target(function, ANSWER_SECONDS, help_text)


def answered_within(
    seconds: float,
) -> Callable[[Callable[Concatenate[Target, P], T]], Callable[P, T]]:
    """A `cluster_command` whose `--timeout` is so long if it is not given."""
    help_text = f"Seconds to wait for an answer.  [default: {seconds:g}]"

    def decorate(function: Callable[Concatenate[Target, P], T]) -> Callable[P, T]:
        return _with_target(function, seconds, help_text)

    return decorate


def _with_target(
    function: Callable[Concatenate[Target, P], T], seconds: float, help_text: str
) -> Callable[P, T]:
    @cluster_after
    @click.option(
        "--timeout",
        type=Number(min=0.1),
        default=None,
        help=help_text,
    )
    @click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text.")
    @wraps(function)
    def command(*args: P.args, **kwargs: P.kwargs) -> T:
        # What comes from a port of something else is told by the error, not by the library's log.
        logging.getLogger("roq.runtime.rpc").addHandler(logging.NullHandler())
        given = kwargs.pop("timeout")
        kwargs.pop("address")
        target = Target(
            address=check_addresses(address_given(click.get_current_context())),
            timeout=seconds if given is None else float(str(given)),
            change_timeout=CHANGE_SECONDS if given is None else float(str(given)),
            as_json=bool(kwargs.pop("as_json")),
        )
        return function(target, *args, **kwargs)

    return command


def explained(text: str, addresses: str) -> str:
    """Why no configuration manager answers, with what is at the addresses instead if it is known.

    Args:
        text: what is known without looking.
        addresses: where none has answered.
    """
    told = "; ".join(what_is_there_instead(addresses))
    return f"{text.partition('. ')[0]}: {told}" if told else text


def what_is_there_instead(addresses: str) -> list[str]:
    """What is at the addresses at which no configuration manager answers, as far as it is known."""
    from roq.cli.no_answer import what_is_at  # noqa: PLC0415 - rarely needed, and large

    looked = [what_is_at(each) for each in parse_addresses(addresses)[:ADDRESSES_LOOKED_AT_MAX]]
    return [each for each in looked if each]


def check_addresses(text: str) -> str:
    """Give the addresses of a cluster back if they can be ones.

    Raises:
        click.UsageError: one of them cannot.
    """
    try:
        parse_addresses(text)
    except InvalidRequest as error:
        raise click.UsageError(f"--cluster: {error}") from None
    return text
