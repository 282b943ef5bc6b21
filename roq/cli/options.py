"""What the options of many commands share: numbers, and `--cluster`.

`--cluster` stands before the verb or after it: the one that is nearest to the verb counts.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

DEFAULT_CLUSTER: Final = "127.0.0.1:5000"
VARIABLE: Final = "ROQ_CLUSTER"
_BEFORE: Final = "roq.cluster"
_F = TypeVar("_F", bound=Callable[..., Any])


class Number(click.FloatRange):
    """A number within bounds; `nan`, which is within all of them, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As any type of click."""
        number = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        """As click says it; empty where there is no bound, of which click says `x<=None`."""
        return "" if self.min is None and self.max is None else super()._describe_range()


def texts_option(name: str, argument: str, *, help: str) -> Callable[[_F], _F]:  # noqa: A002
    """Let a command take NAME=TEXT, repeatedly: a dict, as this argument.

    Args:
        help: as of any option.
    """

    def texts(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> Any:
        pairs = [each.partition("=") for each in given]
        for each, (key, equals, _) in zip(given, pairs, strict=True):
            if not (key and equals):
                raise click.BadParameter(f"{each!r} is not of the form NAME=TEXT")
        return {key: text for key, _, text in pairs}

    return click.option(
        name, argument, metavar="NAME=TEXT", multiple=True, callback=texts, help=help
    )


def cluster_before(function: _F) -> _F:
    """Let a group of commands take `--cluster`, for the command that follows."""
    return click.option(
        "--cluster",
        metavar="HOST:PORT",
        expose_value=False,
        callback=_remember,
        help="As of the command that follows.",
    )(function)


def cluster_after(function: _F) -> _F:
    """Give a command `--cluster`, as its argument `address`."""
    return click.option(
        "--cluster",
        "address",
        metavar="HOST:PORT",
        envvar=VARIABLE,
        default=DEFAULT_CLUSTER,
        show_default=True,
        show_envvar=True,
        help="Client address of a configuration manager; several with commas.",
    )(function)


def given_before(ctx: click.Context) -> str | None:
    """What was given before the verb; None if nothing was."""
    found = ctx.meta.get(_BEFORE)
    return found if isinstance(found, str) else None


def address_given(ctx: click.Context) -> str:
    """The address for the command of this context."""
    after = ctx.params.get("address")
    before = given_before(ctx)
    said = ctx.get_parameter_source("address") is ParameterSource.COMMANDLINE
    if isinstance(after, str) and (said or before is None):
        return after
    return before or DEFAULT_CLUSTER


def _remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_BEFORE] = value
