"""What the commands share that talk to a cluster: its address, JSON or tables, the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

import click

import roq
from roq.client.addresses import parse_addresses
from roq.errors import InvalidRequest

DEFAULT_CLUSTER: Final = "127.0.0.1:5000"
ANSWER_SECONDS: Final = 10.0
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
        """The cluster, for as long as the block runs."""
        with roq.connect(self.address, timeout=self.timeout) as cluster:
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
    @click.option(
        "--cluster",
        "address",
        metavar="HOST:PORT",
        envvar="ROQ_CLUSTER",
        default=DEFAULT_CLUSTER,
        show_default=True,
        show_envvar=True,
        help="Client address of a configuration manager; several with commas.",
    )
    @click.option(
        "--timeout",
        type=click.FloatRange(min=0.1),
        default=None,
        help=help_text,
    )
    @click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text.")
    @wraps(function)
    def command(*args: P.args, **kwargs: P.kwargs) -> T:
        given = kwargs.pop("timeout")
        target = Target(
            address=check_addresses(str(kwargs.pop("address"))),
            timeout=seconds if given is None else float(str(given)),
            change_timeout=CHANGE_SECONDS if given is None else float(str(given)),
            as_json=bool(kwargs.pop("as_json")),
        )
        return function(target, *args, **kwargs)

    return command


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
