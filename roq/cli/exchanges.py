"""`roq exchange`: the exchanges of a queue."""

from __future__ import annotations

import click

from roq.cli.client import Target, cluster_command
from roq.cli.output import done, print_json
from roq.cli.queues import print_exchanges


@click.group()
def exchange() -> None:
    """Add exchanges to a queue, and list them.

    \b
    Example:
      roq exchange add orders --host 127.0.0.2
      roq exchange list orders
    """


@exchange.command(short_help="Start one more exchange for QUEUE.")
@click.argument("queue")
@click.option("--host", default="", help="Where it runs; the least loaded live host if not given.")
@click.option(
    "--transaction",
    default="",
    help="The same word again starts no second exchange, so the command may be repeated.",
)
@cluster_command
def add(target: Target, queue: str, host: str, transaction: str) -> None:
    """Start one more exchange for QUEUE; publishers that come later use it.

    \b
    Example:
      roq exchange add orders
      roq exchange add orders --host 127.0.0.2 --transaction second-host
    """
    with target.connect() as cluster:
        name = cluster.add_exchange(queue, host or None, transaction or None)
    done(
        f"exchange {name} of queue {queue} is running",
        as_json=target.as_json,
        queue=queue,
        exchange=name,
    )


@exchange.command("list")
@click.argument("queue")
@cluster_command
def list_(target: Target, queue: str) -> None:
    """List the exchanges of QUEUE with their addresses.

    \b
    Example:
      roq exchange list orders
    """
    with target.connect() as cluster:
        rows = cluster.exchanges(queue)
    if target.as_json:
        print_json(rows)
    else:
        print_exchanges(rows, queue)
