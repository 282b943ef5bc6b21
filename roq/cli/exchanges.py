"""`roq exchange`: the exchanges of a queue."""

from __future__ import annotations

from typing import Final

import click

from roq.cli import completion
from roq.cli.client import Target, change_command, cluster_command
from roq.cli.failures import confirm
from roq.cli.options import Number, cluster_before
from roq.cli.output import done, note, print_listing, print_memory
from roq.cli.queues import print_exchanges, print_reasons
from roq.client.cluster import REMOVAL_SECONDS

NOT_RUNNING: Final = frozenset({"away", "failed", "missing", "lost"})


@click.group()
@cluster_before
def exchange() -> None:
    """Add exchanges to a queue, remove and list them.

    \b
    Example:
      roq exchange add orders --host 127.0.0.2
      roq exchange list orders
      roq exchange remove orders x2
      roq exchange forget orders x1
    """


@exchange.command(short_help="Start one more exchange for QUEUE.")
@click.argument("queue", shell_complete=completion.queues)
@click.option(
    "--host",
    default="",
    shell_complete=completion.hosts,
    help="Where it runs; the least loaded live host if not given.",
)
@click.option(
    "--transaction",
    default="",
    help="The same word again starts no second exchange, so the command may be repeated.",
)
@change_command
def add(target: Target, queue: str, host: str, transaction: str) -> None:
    """Start one more exchange for QUEUE; publishers move there as the load wants it.

    \b
    Example:
      roq exchange add orders
      roq exchange add orders --host 127.0.0.2 --transaction second-host
    """
    with target.connect() as cluster:
        name = cluster.add_exchange(
            queue, host or None, transaction or None, timeout=target.change_timeout
        )
    done(
        f"exchange {name} of queue {queue} is running",
        as_json=target.as_json,
        queue=queue,
        exchange=name,
    )


@exchange.command(short_help="Empty EXCHANGE of QUEUE and stop it.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("exchange", shell_complete=completion.exchanges)
@click.option(
    "--wait",
    type=Number(min=1.0),
    default=REMOVAL_SECONDS,
    show_default=True,
    help="Seconds within which it is to be empty.",
)
@cluster_command
def remove(target: Target, queue: str, exchange: str, wait: float) -> None:
    """Empty EXCHANGE of QUEUE and stop it, without losing a message.

    Its publishers move to the other exchanges and subscribers read it to its end. If that takes
    too long it stays, and what it waits for is told; the command may be repeated. One with a log
    that is away or does not run is refused: `roq exchange forget` gives it up.

    Of a durable queue its log goes as well, and with it what it alone knew of named publishers: one
    that is not open now may begin with lower sequences when it comes back, and who sends by them
    sends some messages again.

    \b
    Example:
      roq exchange remove orders x2
      roq exchange remove orders x2 --wait 300
    """
    if not target.as_json:
        note(f"asking queue {queue} to empty {exchange} …")
    with target.connect() as cluster:
        warning = cluster.remove_exchange(
            queue, exchange, timeout=wait, on_wait=None if target.as_json else note
        )
    done(
        f"exchange {exchange} of queue {queue} is removed",
        as_json=target.as_json,
        warning=warning,
        queue=queue,
        exchange=exchange,
    )


@exchange.command(short_help="Give EXCHANGE of QUEUE up, whose log cannot be read.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("exchange", shell_complete=completion.exchanges)
@click.option("--yes", is_flag=True, help="Do it; else it is asked for, after saying what is lost.")
@change_command
def forget(target: Target, queue: str, exchange: str, yes: bool) -> None:
    """Give EXCHANGE of QUEUE up, whose host or disk is gone for good with its log, or that cannot
    read that.

    What only that log holds is lost, and that is said first. An exchange that runs is refused:
    `roq exchange remove` empties it.

    The log of an exchange that has failed is removed. That of one that is away stays where it is,
    also when its host comes back: no exchange uses it, and `roq health` names its folder, which is
    yours to remove. One that has never held anything is removed. It goes with the queue as well.

    What it alone knew of named publishers is lost as well: one that is not open now may begin with
    lower sequences when it comes back, and who sends by them sends some messages again.

    \b
    Example:
      roq exchange forget orders x1
      roq exchange forget orders x1 --yes
    """
    with target.connect() as cluster:
        rows = {row.name: row for row in cluster.exchanges(queue)}
        row = rows.get(f"x{exchange.removeprefix('x')}")
        if row is not None and row.state in NOT_RUNNING:
            away = row.state == "away"
            why = row.reason or f"is {row.state}: its log is on host {row.host}"
            note(
                f"{row.name} of queue {queue} {why}. With its log these are lost: all messages "
                "that it has acknowledged and that a subscriber or a group has not read yet, "
                "delayed ones that wait, and for those to come what is older."
                + f" If host {row.host} has the log, or comes back with it, it stays there: no "
                "exchange uses it, and `roq health` names its folder, which is yours to remove."
                * away
            )
            if not yes:
                confirm("Give it up?")
        warning = cluster.forget_exchange(queue, exchange, timeout=target.change_timeout)
    done(
        f"exchange {exchange} of queue {queue} is given up",
        as_json=target.as_json,
        warning=warning,
        queue=queue,
        exchange=exchange,
    )


@exchange.command("list")
@click.argument("queue", shell_complete=completion.queues)
@cluster_command
def list_(target: Target, queue: str) -> None:
    """List the exchanges of QUEUE with their addresses, and whether scaling has made them.

    \b
    Example:
      roq exchange list orders
    """
    with target.connect() as cluster:
        rows = cluster.exchanges(queue)
    if target.as_json:
        print_listing(rows)
    else:
        print_exchanges(rows, queue)
        print_reasons(rows)
        print_memory(rows.from_memory)
