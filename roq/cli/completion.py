"""What Tab completes: names of queues, groups, exchanges and hosts of the cluster, and of policies.

A shell waits for this, so it takes a second at most, and says nothing when there is no cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import click
from click.shell_completion import CompletionItem

import roq
from roq.cli.options import address_given
from roq.errors import RoQError
from roq.runtime import plugins

SECONDS: Final = 1.0
ITEMS_MAX: Final = 1_000


def queues(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of queues."""
    return _asked(ctx, incomplete, lambda cluster: (each.name for each in cluster.queues()))


def hosts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of hosts."""
    return _asked(ctx, incomplete, lambda cluster: (each.host for each in cluster.hosts()))


def exchanges(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the exchanges of the queue that is named before."""
    queue = ctx.params.get("queue")
    if not isinstance(queue, str):
        return []
    return _asked(ctx, incomplete, lambda cluster: (each.name for each in cluster.exchanges(queue)))


def groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the consumer groups of the queue that is named before."""
    queue = ctx.params.get("queue")
    if not isinstance(queue, str):
        return []
    return _asked(
        ctx,
        incomplete,
        lambda cluster: (each.name for each in cluster.groups(queue, timeout=SECONDS)),
    )


def policies(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the policies that are installed here."""
    return _items(plugins.policies(), incomplete)


def _asked(
    ctx: click.Context, incomplete: str, names: Callable[[roq.Cluster], Iterable[str]]
) -> list[CompletionItem]:
    try:
        with roq.connect(address_given(ctx), timeout=SECONDS) as cluster:
            return _items(names(cluster), incomplete)
    except (RoQError, OSError):
        return []  # a line in the middle of what is being typed would help nobody


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    found = sorted(name for name in names if name.startswith(incomplete))
    return [CompletionItem(name) for name in found[:ITEMS_MAX]]
