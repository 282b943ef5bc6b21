"""`roq host`: start the host manager of this machine, or list the hosts of a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from roq.cli.client import Target, cluster_command
from roq.cli.daemons import daemon_options, run_host_manager
from roq.cli.given import cluster_before
from roq.cli.output import bytes_text, print_listing, print_memory, print_table, state_text


@click.group(invoke_without_command=True, short_help="Run a host manager, or list the hosts.")
@cluster_before
@daemon_options
@click.pass_context
def host(ctx: click.Context, config: Path | None, ready_fd: int | None) -> None:
    """Run the host manager of this machine; with `list`: show the hosts of a cluster.

    A host manager starts the monitors and exchanges that the configuration manager places on its
    host. It runs until SIGTERM or Ctrl-C and exits with 0, or with 69 (ZooKeeper or the
    configuration manager away at the start), 70 (crashed) or 78 (configuration wrong).

    \b
    Example:
      roq host --config config/hcm.toml
      roq host list
    """
    if ctx.invoked_subcommand is None:
        run_host_manager(config, ready_fd)


@host.command("list")
@cluster_command
def list_(target: Target) -> None:
    """List the hosts of the cluster and what runs on them.

    A host is live; silent (no report for some seconds); unmanaged (its manager is gone, but its
    processes live and go on); lost (what was on it runs elsewhere); or awaited (the leader has
    just begun and has not heard of it yet). What is not well is explained below the table.

    \b
    Example:
      roq host list
    """
    with target.connect() as cluster:
        rows = cluster.hosts()
    if target.as_json:
        print_listing(rows)
        return
    print_table(
        ("HOST", "STATE", "EXCHANGES#", "MONITORS#", "CPU %#", "MEMORY#", "PROVIDED", "MANAGER"),
        [
            (
                r.host,
                state_text(r.state),
                f"{r.exchanges} of {r.exchange_max}" if r.exchange_max else r.exchanges,
                r.monitors,
                f"{r.cpu:.0f}",
                bytes_text(r.memory_bytes),
                "yes" if r.provided else "",
                r.control,
            )
            for r in rows
        ],
        "No host yet: `roq host --config config/hcm.toml` starts a host manager.",
    )
    for row in rows:
        if row.reason:
            click.echo(f"host {row.host} is {row.state}: {row.reason}")
        for child in row.children if row.state == "live" else ():
            if child.reason:
                click.echo(f"{child.child} on {row.host} is {child.state}: {child.reason}")
    print_memory(rows.from_memory)
