"""`roq host`: start the host manager of this machine; list, cordon and drain those of a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.daemons import daemon_options, run_host_manager
from roq.cli.drain import DRAIN_SECONDS, Drain
from roq.cli.failures import Failed
from roq.cli.options import Number, cluster_before
from roq.cli.output import (
    done,
    note,
    print_listing,
    print_memory,
    print_table,
    state_text,
)
from roq.client.admin.kept_logs import KeptLog, logs_on
from roq.client.admin.wording import bytes_text


@click.group(invoke_without_command=True, short_help="Run a host manager, or list the hosts.")
@cluster_before
@daemon_options
@click.pass_context
def host(ctx: click.Context, config: Path | None, ready_fd: int | None) -> None:
    """Run the host manager of this machine; with `list`: show the hosts of a cluster.

    A host manager starts the monitors and exchanges that the configuration manager places on its
    host. It runs until SIGTERM or Ctrl-C and exits with 0, or with 69 (the registry or the
    configuration manager away at the start), 70 (crashed) or 78 (configuration wrong).

    At SIGTERM what runs here goes to other hosts first, for at most children.drain_seconds; at
    Ctrl-C, or a second SIGTERM, it is stopped at once.

    \b
    Example:
      roq host --config config/hcm.toml
      roq host list
      roq host drain 10.0.0.2 --wait
    """
    if ctx.invoked_subcommand is None:
        run_host_manager(config, ready_fd)


@host.command("list")
@cluster_command
def list_(target: Target) -> None:
    """List the hosts of the cluster and what runs on them.

    A host is live; silent (no report for some seconds); unmanaged (its manager is gone, but its
    processes live and go on); lost (what was on it runs elsewhere); or awaited (the leader has
    just begun and has not heard of it yet). A live one may be cordoned (nothing new is placed
    there), draining (and what is there goes elsewhere) or drained (nothing is left). What is not
    well, and what is left of hosts that are drained, is told below the table.

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
                state_text(r.shown_state),
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
        for each in row.left:
            click.echo(f"left on {row.host}: {each}")
        if row.stuck:
            click.echo(f"host {row.host} cannot be drained: {row.stuck}")
        for child in row.children if row.state == "live" else ():
            if child.reason:
                click.echo(f"{child.child} on {row.host} is {child.state}: {child.reason}")
    print_memory(rows.from_memory)


@host.command(short_help="Place nothing new on HOST.")
@click.argument("name", metavar="HOST", shell_complete=completion.hosts)
@cluster_command
def cordon(target: Target, name: str) -> None:
    """Place nothing new on HOST; what is there stays and works on.

    \b
    Example:
      roq host cordon 10.0.0.2
    """
    with target.connect() as cluster:
        cluster.cordon_host(name, timeout=target.change_timeout)
    done(f"host {name} is cordoned", as_json=target.as_json, host=name)


@host.command(short_help="Place on HOST as on any other host.")
@click.argument("name", metavar="HOST", shell_complete=completion.hosts)
@cluster_command
def uncordon(target: Target, name: str) -> None:
    """Place on HOST again as on any other; takes `cordon` and `drain` back.

    What has left it does not come back by itself.

    \b
    Example:
      roq host uncordon 10.0.0.2
    """
    with target.connect() as cluster:
        cluster.uncordon_host(name, timeout=target.change_timeout)
    done(f"host {name} takes what is placed", as_json=target.as_json, host=name)


@host.command(short_help="Have everything on HOST go elsewhere.")
@click.argument("name", metavar="HOST", shell_complete=completion.hosts)
@click.option("--wait", is_flag=True, help="End when nothing is left there, and say what is.")
@click.option(
    "--within",
    type=Number(min=1.0),
    default=DRAIN_SECONDS,
    show_default=True,
    help="With --wait: seconds until it ends with an error; the drain goes on.",
)
@click.option("--yes", is_flag=True, help="Do it, also if logs of durable queues go with it.")
@cluster_command
def drain(target: Target, name: str, wait: bool, within: float, yes: bool) -> None:
    """Have everything on HOST go to other hosts, but for what is kept in logs.

    Nothing new is placed there. Publishers move, subscribers and groups that are there read what is
    left, monitors start elsewhere; then HOST holds nothing and may be stopped. It goes on without
    this command, and `roq host uncordon HOST` takes it back. With --wait the exit code is 1 if no
    other host has room, or if it takes too long.

    The logs of durable queues do not go elsewhere: they are removed, with what is kept in them for
    those to come. Which ones that are is said, and you are asked; a program says --yes. To keep
    them stop the host manager by SIGTERM instead, and start it again.

    \b
    Example:
      roq host drain 10.0.0.2 --wait
      roq host drain 10.0.0.2 --yes && roq host list
    """
    with target.connect() as cluster:
        if not yes:
            _ask_for_logs(logs_on(cluster, name), name, asks=not target.as_json)
        cluster.drain_host(name, timeout=target.change_timeout)
        if not wait:
            done(f"host {name} is being drained", as_json=target.as_json, host=name)
            return
        try:
            Drain(cluster, name, quiet=target.as_json).wait(within)
        except KeyboardInterrupt:
            note(f"host {name} goes on being drained; `roq host uncordon {name}` takes it back")
            raise
    done(f"host {name} holds nothing", as_json=target.as_json, host=name)


def _somebody_is_there() -> bool:
    return sys.stdin.isatty()


def _ask_for_logs(logs: list[KeptLog], host: str, *, asks: bool) -> None:
    """Say which logs go with a host, and go on if that is wanted.

    Raises:
        Failed: nobody can be asked.
    """
    if not logs:
        return
    for each in logs:
        note(str(each))
    note(
        f"These logs are removed when host {host} is empty. Subscribers and groups that are there "
        "have what is in them first; nobody else finds it any more (`start=`, Spark, groups to "
        "come). If the host is to be back, stop its manager by SIGTERM instead: then they stay."
    )
    if not asks or not _somebody_is_there():
        raise Failed(
            f"host {host} is not drained: {len(logs)} log{'s' * (len(logs) > 1)} would be removed, "
            "and nobody can be asked here",
            hint="Say --yes if that is meant.",
        )
    click.confirm("Drain it, and remove them?", abort=True, err=True)


@host.command(short_help="Forget HOST, which is gone.")
@click.argument("name", metavar="HOST", shell_complete=completion.hosts)
@click.option("--force", is_flag=True, help="Its machine is gone for good, whatever seems to live.")
@cluster_command
def remove(target: Target, name: str, force: bool) -> None:
    """Forget HOST, which is gone or empty, with its cordon.

    Refused while its manager reports, or while something belongs there. With --force what belongs
    on a host without a manager is lost, and set up again on others. Logs that were removed while it
    was away (`removed` in `roq health`) are not waited for any more; should it come back with them,
    they are yours to remove.

    \b
    Example:
      roq host remove 10.0.0.2
    """
    with target.connect() as cluster:
        cluster.remove_host(name, force=force, timeout=target.change_timeout)
    done(f"host {name} is forgotten", as_json=target.as_json, host=name)
