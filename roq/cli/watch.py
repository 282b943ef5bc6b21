"""`roq watch`: the configuration broadcast as it comes."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

from roq.cli.client import Target, cluster_command
from roq.cli.interrupts import ends_quietly
from roq.client.admin.broadcast import ClusterState


@click.command(short_help="Follow queues and hosts at each change.")
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
        for number, state in enumerate(cluster.watch(), start=1):
            click.echo(_json(state) if target.as_json else _text(state))
            if number == count:
                return


def _json(state: ClusterState) -> str:
    return msgspec.json.encode(state).decode()


def _text(state: ClusterState) -> str:
    moment = datetime.now().astimezone().strftime("%H:%M:%S")
    running = [q.name for q in state.queues if q.running]
    stopped = [q.name for q in state.queues if not q.running]
    parts = [
        f"queues {', '.join(running) or 'none'}",
        *([f"stopped {', '.join(stopped)}"] if stopped else []),
        f"hosts {', '.join(state.hosts) or 'none'}",
    ]
    return f"{moment} version {state.version}: " + "; ".join(parts)
