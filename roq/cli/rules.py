"""`roq rules`: when a queue moves publishers, grows and shrinks by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click
import msgspec

from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.options import cluster_before
from roq.cli.output import done, print_fields, print_json
from roq.client.admin.rules import NAME, changed, fields_of, in_force, limit_of
from roq.errors import InvalidName, InvalidRequest
from roq.model import ElasticRules, check_name
from roq.protocol.scaling_rules import RANGES, SLOW

_DEFAULTS: Final = ElasticRules()
_FIELDS: Final = {
    "cooldown": "cooldown_seconds",
    "slow": "slow_subscriber",
    "exchange_throughput": "exchange_bytes_per_minute",
    "queue_throughput": "queue_bytes_per_minute_per_exchange",
    "queue_publishers": "queue_publishers_per_exchange",
    "latency": "latency_ms",
    "host_cpu": "host_cpu_percent",
    "host_memory": "host_memory_mb",
}
"""Option → field of `ScalingRules`, where they have different names."""


def _number(field: str) -> click.IntRange:
    """What the cluster accepts for this field."""
    low, high = RANGES[field]
    return click.IntRange(low, high)


@click.group()
@cluster_before
def rules() -> None:
    """Set and show the rules by which a queue grows and shrinks.

    Every queue is elastic: when an exchange carries more than it should, publishers move to others;
    when that is not enough, an exchange is added; when fewer would do, one goes. Without rules this
    happens by the throughput of the exchanges alone, with 1 to 4 of them.

    \b
    Example:
      roq rules set orders --exchange-throughput 60000000 --max 8 --latency 20
      roq rules show orders
      roq top                                  # see what it does
    """


@rules.command("set")
@click.argument("queue", shell_complete=completion.queues)
@click.option(
    "--replace",
    is_flag=True,
    help="What is not given here gets its default again, instead of staying as it is.",
)
@click.option("--name", default=None, help=f"Name of this set, for people.  [default: {NAME}]")
@click.option(
    "--policy",
    default=None,
    metavar="NAME",
    help="Who decides: `balanced`, `known` (the published algorithm), `spread` (counts publishers "
    "only), `static` (nothing by itself), or one that is installed as an entry point in "
    "`roq.policies` where the hosts and the configuration managers run.  "
    f"[default: {_DEFAULTS.policy}]",
    shell_complete=completion.policies,
)
@click.option(
    "--min", "exchanges_min", type=_number("AUTOSCALING_ROQ_XCHANGE_MIN"), default=None,
    help=f"Exchanges that are always kept.  [default: {_DEFAULTS.exchanges_min}]",
)  # fmt: skip
@click.option(
    "--max", "exchanges_max", type=_number("AUTOSCALING_ROQ_XCHANGE_MAX"), default=None,
    help="Exchanges that there may be; 1: the queue never grows.  "
    "[default: the queue's limit exchanges_max]",
)  # fmt: skip
@click.option(
    "--cooldown", type=_number("AUTOSCALING_ROQ_COOLDOWN"), default=None,
    help="Seconds for which the number of exchanges is left alone after a change.  "
    f"[default: {_DEFAULTS.cooldown_seconds}]",
)  # fmt: skip
@click.option(
    "--slow", type=click.Choice(SLOW), default=None,
    help="For a slow subscriber: `hold` publishers back while it reads, or `drop` what it misses.  "
    f"[default: {_DEFAULTS.slow_subscriber}]",
)  # fmt: skip
@click.option(
    "--hold-seconds", type=_number("AUTOSCALING_ROQ_HOLD"), default=None,
    help="So long they are held back for one that does not read on.  "
    f"[default: {_DEFAULTS.hold_seconds}]",
)  # fmt: skip
@click.option(
    "--exchange-throughput", type=_number("AUTOSCALING_XCHANGE_THR"), default=None,
    help="The limit L of an exchange, payload bytes per minute: above 110 % of it publishers "
    "move.  [default: the queue's limit throughput_bytes]",
)  # fmt: skip
@click.option(
    "--queue-throughput", type=_number("AUTOSCALING_THR_PROD_EXCH"), default=None,
    help="Grow above so many payload bytes per minute and exchange.",
)  # fmt: skip
@click.option(
    "--queue-publishers", type=_number("AUTOSCALING_Q_PROD_EXCH"), default=None,
    help="Grow above so many publishers per exchange.",
)  # fmt: skip
@click.option(
    "--latency", type=_number("AUTOSCALING_ROQ_LATENCY"), default=None,
    help="Grow when subscribers report a higher mean latency, in ms.",
)  # fmt: skip
@click.option(
    "--host-cpu", type=_number("AUTOSCALING_HOST_CPU"), default=None,
    help="Grow when one of the queue's hosts uses more than so many percent of all its cores.",
)  # fmt: skip
@click.option(
    "--host-memory", type=_number("AUTOSCALING_HOST_RAM"), default=None,
    help="Grow when one of the queue's hosts has more than so many MB of memory in use.",
)  # fmt: skip
@cluster_command
def set_(target: Target, /, queue: str, replace: bool, **given: int | str | None) -> None:
    """Change the rules of QUEUE: what is given is set, the rest stays as it is.

    A limit of 0 is not looked at.

    \b
    Example:
      roq rules set orders --max 8 --queue-publishers 4
      roq rules set orders --latency 20        # the rules above stay
      roq rules set orders --policy static     # exchanges are added by hand alone
      roq rules set orders --replace           # back to the defaults
    """
    wanted = {_FIELDS.get(key, key): value for key, value in given.items() if value is not None}
    _check(wanted)
    with target.connect() as cluster:
        described = cluster.describe(queue)
        try:
            result = changed(described, wanted, replace=replace)
        except InvalidRequest as error:
            raise click.UsageError(str(error)) from None
        cluster.set_rules(queue, result)
    done(
        f"queue {queue} has new scaling rules, named {result.name}",
        as_json=target.as_json,
        queue=queue,
        rules=result.name,
    )


@rules.command()
@click.argument("queue", shell_complete=completion.queues)
@cluster_command
def show(target: Target, queue: str) -> None:
    """Show the rules that are in force for QUEUE, set or not.

    \b
    Example:
      roq rules show orders
    """
    with target.connect() as cluster:
        described = cluster.describe(queue)
    found = in_force(described)
    if target.as_json:
        fields: Mapping[str, object] = msgspec.to_builtins(found)
        print_json({**fields, "set": bool(described.rules), "exchange_limit": limit_of(described)})
        return
    print_fields(fields_of(found, limit_of(described)))


def _check(wanted: Mapping[str, int | str]) -> None:
    """What click's types do not see, and what needs no cluster to be seen."""
    low, high = wanted.get("exchanges_min"), wanted.get("exchanges_max")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise click.UsageError(f"--min {low} is above --max {high}")
    try:
        check_name(str(wanted.get("policy", _DEFAULTS.policy)), "policy")
    except InvalidName as error:
        raise click.UsageError(f"--policy: {error}") from None
