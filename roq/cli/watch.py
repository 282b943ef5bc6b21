"""`roq watch`: the configuration broadcast as it comes."""

from __future__ import annotations

import json
from datetime import datetime

import click

from roq.cli.client import Target, cluster_command
from roq.cli.interrupts import ends_quietly
from roq.protocol.broadcast import Configuration


@click.command()
@click.option("--count", type=click.IntRange(min=1), help="End after so many changes.")
@cluster_command
def watch(target: Target, count: int | None) -> None:
    """Follow the configuration of the cluster: queues and hosts, at each change.

    Ends with Ctrl-C, or after --count changes.

    \b
    Example:
      roq watch
      roq watch --json --count 1
    """
    with ends_quietly(), target.connect() as cluster:
        for number, change in enumerate(cluster.watch(), start=1):
            click.echo(_json(change) if target.as_json else _text(change))
            if number == count:
                return


def _json(change: Configuration) -> str:
    return json.dumps(
        {
            "version": change.version,
            "queues": [{"name": q.Name, "host": q.Host, "running": q.State} for q in change.queues],
            "hosts": list(change.hosts),
        }
    )


def _text(change: Configuration) -> str:
    moment = datetime.now().astimezone().strftime("%H:%M:%S")
    running = [q.Name for q in change.queues if q.State]
    stopped = [q.Name for q in change.queues if not q.State]
    parts = [
        f"queues {', '.join(running) or 'none'}",
        *([f"stopped {', '.join(stopped)}"] if stopped else []),
        f"hosts {', '.join(change.hosts) or 'none'}",
    ]
    return f"{moment} version {change.version}: " + "; ".join(parts)
