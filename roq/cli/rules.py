"""`roq rules`: the scaling rules of a queue."""

from __future__ import annotations

import click

from roq.cli.client import Target, cluster_command
from roq.cli.output import done, print_fields, print_json
from roq.client.views import ScalingRules

_LIMIT = click.IntRange(min=0)


@click.group()
def rules() -> None:
    """Set and show the scaling rules of a queue.

    They are kept with the queue and pushed to programs that registered for them; nothing in this
    version acts on them by itself.

    \b
    Example:
      roq rules set orders --host-cpu 80 --exchange-throughput 75000000
      roq rules show orders
    """


@rules.command("set")
@click.argument("queue")
@click.option("--name", default="rules", show_default=True, help="Name of this set of rules.")
@click.option("--host-cpu", type=_LIMIT, default=0, help="A host is full at so many percent CPU.")
@click.option(
    "--host-memory", type=_LIMIT, default=0, help="A host is full at so many MB of memory in use."
)
@click.option(
    "--exchange-throughput",
    type=_LIMIT,
    default=0,
    help="An exchange is full at so many bytes per minute.",
)
@click.option(
    "--queue-throughput",
    type=_LIMIT,
    default=0,
    help="The queue grows at so many bytes per minute and exchange.",
)
@click.option(
    "--queue-publishers",
    type=_LIMIT,
    default=0,
    help="The queue grows at so many publishers per exchange.",
)
@cluster_command
def set_(
    target: Target,
    queue: str,
    name: str,
    host_cpu: int,
    host_memory: int,
    exchange_throughput: int,
    queue_throughput: int,
    queue_publishers: int,
) -> None:
    """Set the scaling rules of QUEUE; they replace those before. A rule of 0 is not evaluated.

    \b
    Example:
      roq rules set orders --host-cpu 80 --queue-publishers 4
    """
    with target.connect() as cluster:
        cluster.set_rules(
            queue,
            ScalingRules(
                name=name,
                host_cpu_percent=host_cpu,
                host_memory_mb=host_memory,
                exchange_bytes_per_minute=exchange_throughput,
                queue_bytes_per_minute_per_exchange=queue_throughput,
                queue_publishers_per_exchange=queue_publishers,
            ),
        )
    done(
        f"queue {queue} has new scaling rules, named {name}",
        as_json=target.as_json,
        queue=queue,
        rules=name,
    )


@rules.command()
@click.argument("queue")
@cluster_command
def show(target: Target, queue: str) -> None:
    """Show the scaling rules of QUEUE.

    \b
    Example:
      roq rules show orders
    """
    with target.connect() as cluster:
        found = cluster.get_rules(queue)
    if target.as_json:
        print_json(found)
        return
    print_fields(
        [
            ("Rules", found.name),
            ("Host: CPU", _limit(found.host_cpu_percent, "%")),
            ("Host: memory", _limit(found.host_memory_mb, "MB")),
            ("Exchange: throughput", _limit(found.exchange_bytes_per_minute, "bytes/min")),
            (
                "Queue: throughput per exchange",
                _limit(found.queue_bytes_per_minute_per_exchange, "bytes/min"),
            ),
            ("Queue: publishers per exchange", _limit(found.queue_publishers_per_exchange, "")),
        ]
    )


def _limit(value: int, unit: str) -> str:
    return f"{value:,} {unit}".rstrip() if value else "not evaluated"
