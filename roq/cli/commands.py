"""The commands of `roq`: one module per noun, loaded when it is asked for.

This package is the only part of RoQ that prints or ends the process.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

import click

from roq.cli import interrupts
from roq.cli.failures import INTERRUPTED, REFUSED, Failed, failed
from roq.cli.interrupts import dies_by_interrupt, silence_output
from roq.cli.options import cluster_before, given_before
from roq.errors import RoQError

COMMANDS: Final[dict[str, str]] = {
    "up": "roq.cli.up:up",
    "demo": "roq.cli.demo:demo",
    "gcm": "roq.cli.daemons:gcm",
    "host": "roq.cli.hosts:host",
    "queue": "roq.cli.queues:queue",
    "exchange": "roq.cli.exchanges:exchange",
    "rules": "roq.cli.rules:rules",
    "pub": "roq.cli.messages:pub",
    "sub": "roq.cli.messages:sub",
    "consume": "roq.cli.consume:consume",
    "message": "roq.cli.delayed:message",
    "transaction": "roq.cli.transactions:transaction",
    "group": "roq.cli.groups:group",
    "service": "roq.cli.services:service",
    "request": "roq.cli.requests:request",
    "response": "roq.cli.responses:response",
    "dead-letter": "roq.cli.dead_letters:dead_letter",
    "jobs": "roq.cli.jobs:jobs",
    "health": "roq.cli.health:health",
    "watch": "roq.cli.watch:watch",
    "top": "roq.cli.top:top",
    "console": "roq.cli.console:console",
    "log": "roq.cli.log:log",
    "debug": "roq.cli.debug:debug",
    "sim": "roq.cli.sim:sim",
    "bench": "roq.cli.bench:bench",
}
"""Name → where the command is; in the order in which a newcomer meets them."""

ALONE: Final = frozenset({"up", "demo", "gcm", "jobs", "log", "debug", "sim", "bench"})
"""Commands that ask no cluster, or one of their own."""

EPILOG: Final = """\
\b
Five minutes to see it work:
  roq up --hosts 2                      # a whole cluster, until Ctrl-C
  roq queue create orders               # in a second terminal, like all below
  roq sub orders --topic eu.            # in a third one
  echo hello | roq pub orders --topic eu.be

\b
Commands ask the cluster at 127.0.0.1:5000 unless --cluster or ROQ_CLUSTER
names another. --cluster may stand before or after the command.
Completion by Tab (bash; zsh and fish likewise), also of queues and hosts:
  eval "$(_ROQ_COMPLETE=bash_source roq)"
"""


class Commands(click.Group):
    """The commands of `COMMANDS`; an error of RoQ becomes one line instead of a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        with dies_by_interrupt():
            command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - the table above is ours
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run, and say in one line what went wrong."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except RoQError as error:
            if ctx.params.get("debug"):
                raise
            raise failed(error) from None


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="roq-cluster", message="roq %(version)s")
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
@cluster_before
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """RoQ: an elastic queue cluster.

    A cluster has hosts, a logical queue has one or more exchanges on them. Publishers send to one
    exchange, subscribers get everything that matches their topic from all of them.
    """
    del debug  # read by Commands.invoke
    if ctx.invoked_subcommand in ALONE and given_before(ctx) is not None:
        raise click.UsageError(f"`roq {ctx.invoked_subcommand}` asks no cluster: omit --cluster")


def run() -> None:
    """Run the command that the arguments of the process say.

    Whatever the command: it ends with 1 if standard output cannot be written, and says so in one
    line unless its reader has just gone.
    """
    output = interrupts.watched()
    try:
        try:
            cli(prog_name="roq")
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error is not output.failure:
            raise
        silence_output()
        if not isinstance(error, BrokenPipeError):
            Failed(f"standard output cannot be written: {error.strerror}").show()
        raise SystemExit(REFUSED) from None
