"""What the commands share that talk to a cluster: its address, JSON or tables, the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

import click

import roq

DEFAULT_CLUSTER: Final = "127.0.0.1:5000"
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster a command speaks to, and how it answers."""

    addresses: tuple[str, ...]
    timeout: float
    """Seconds to wait for an answer."""
    as_json: bool

    @contextmanager
    def connect(self) -> Iterator[roq.Cluster]:
        """The cluster, for as long as the block runs."""
        with roq.connect(*self.addresses, timeout=self.timeout) as cluster:
            yield cluster


def cluster_command(function: Callable[Concatenate[Target, P], T]) -> Callable[P, T]:
    """Give a command `--cluster`, `--timeout` and `--json`, and the function a `Target`."""

    @click.option(
        "--cluster",
        "addresses",
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
        default=10.0,
        show_default=True,
        help="Seconds to wait for an answer.",
    )
    @click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text.")
    @wraps(function)
    def command(*args: P.args, **kwargs: P.kwargs) -> T:
        target = Target(
            addresses=parse_addresses(str(kwargs.pop("addresses"))),
            timeout=float(str(kwargs.pop("timeout"))),
            as_json=bool(kwargs.pop("as_json")),
        )
        return function(target, *args, **kwargs)

    return command


def parse_addresses(text: str) -> tuple[str, ...]:
    """The addresses in `HOST:PORT[,HOST:PORT…]`.

    Raises:
        click.UsageError: one of them is no address.
    """
    addresses = tuple(
        part.strip().removeprefix("tcp://") for part in text.split(",") if part.strip()
    )
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 65_536):
            raise click.UsageError(
                f"{address!r} is no address of a cluster: use HOST:PORT, such as {DEFAULT_CLUSTER}"
            )
    if not addresses:
        raise click.UsageError(
            f"no address of a cluster given: use HOST:PORT, such as {DEFAULT_CLUSTER}"
        )
    return addresses
