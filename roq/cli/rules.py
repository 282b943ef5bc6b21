"""`roq rules`: when a queue moves publishers, grows and shrinks by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click
import msgspec

from roq.cli.client import Target, cluster_command
from roq.cli.output import done, print_fields, print_json
from roq.client.views import QueueDescription, ScalingRules, rules_of
from roq.errors import InvalidName
from roq.model import ElasticRules, check_name
from roq.protocol.rules import RANGES, SLOW

_DEFAULTS: Final = ElasticRules()
_NOT_SET: Final = "(none set: these are the defaults in force)"


def _number(field: str) -> click.IntRange:
    """What the cluster accepts for this field."""
    low, high = RANGES[field]
    return click.IntRange(low, high)


@click.group()
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
@click.argument("queue")
@click.option("--name", default="rules", show_default=True, help="Name of this set, for people.")
@click.option(
    "--policy",
    default=_DEFAULTS.policy,
    show_default=True,
    metavar="NAME",
    help="Who decides: `balanced`, `known` (the published algorithm), `spread` (counts publishers "
    "only), `static` (nothing by itself), or one that is installed as an entry point in "
    "`roq.policies` where the queue's monitor runs.",
)
@click.option(
    "--min", "exchanges_min", type=_number("AUTOSCALING_ROQ_XCHANGE_MIN"),
    default=_DEFAULTS.exchanges_min, show_default=True,
    help="Exchanges that are always kept.",
)  # fmt: skip
@click.option(
    "--max", "exchanges_max", type=_number("AUTOSCALING_ROQ_XCHANGE_MAX"),
    default=_DEFAULTS.exchanges_max, show_default=True,
    help="Exchanges that there may be; 1: the queue never grows.",
)  # fmt: skip
@click.option(
    "--cooldown", type=_number("AUTOSCALING_ROQ_COOLDOWN"),
    default=_DEFAULTS.cooldown_seconds, show_default=True,
    help="Seconds for which the number of exchanges is left alone after a change.",
)  # fmt: skip
@click.option(
    "--slow", type=click.Choice(SLOW), default=_DEFAULTS.slow_subscriber, show_default=True,
    help="For a slow subscriber: `hold` publishers back while it reads, or `drop` what it misses.",
)  # fmt: skip
@click.option(
    "--hold-seconds", type=_number("AUTOSCALING_ROQ_HOLD"),
    default=_DEFAULTS.hold_seconds, show_default=True,
    help="So long they are held back for one that does not read on.",
)  # fmt: skip
@click.option(
    "--exchange-throughput", type=_number("AUTOSCALING_XCHANGE_THR"), default=0,
    help="The limit L of an exchange, payload bytes per minute: above 110 % of it publishers "
    "move.  [default: the queue's limit throughput_bytes]",
)  # fmt: skip
@click.option(
    "--queue-throughput", type=_number("AUTOSCALING_THR_PROD_EXCH"), default=0,
    help="Grow above so many payload bytes per minute and exchange.",
)  # fmt: skip
@click.option(
    "--queue-publishers", type=_number("AUTOSCALING_Q_PROD_EXCH"), default=0,
    help="Grow above so many publishers per exchange.",
)  # fmt: skip
@click.option(
    "--latency", type=_number("AUTOSCALING_ROQ_LATENCY"), default=0,
    help="Grow when subscribers report a higher mean latency, in ms.",
)  # fmt: skip
@click.option(
    "--host-cpu", type=_number("AUTOSCALING_HOST_CPU"), default=0,
    help="Grow when one of the queue's hosts uses more than so many percent of all its cores.",
)  # fmt: skip
@click.option(
    "--host-memory", type=_number("AUTOSCALING_HOST_RAM"), default=0,
    help="Grow when one of the queue's hosts has more than so many MB of memory in use.",
)  # fmt: skip
@cluster_command
def set_(
    target: Target,
    queue: str,
    name: str,
    policy: str,
    exchanges_min: int,
    exchanges_max: int,
    cooldown: int,
    slow: str,
    hold_seconds: int,
    exchange_throughput: int,
    queue_throughput: int,
    queue_publishers: int,
    latency: int,
    host_cpu: int,
    host_memory: int,
) -> None:
    """Set the rules of QUEUE; they replace those before as a whole.

    Limits of 0 are not looked at, which is the default of those below without another one.

    \b
    Example:
      roq rules set orders                     # the defaults
      roq rules set orders --max 8 --queue-publishers 4
      roq rules set orders --policy static     # whoever adds exchanges does it by hand
    """
    given = ScalingRules(
        name=name,
        policy=policy,
        exchanges_min=exchanges_min,
        exchanges_max=exchanges_max,
        cooldown_seconds=cooldown,
        slow_subscriber=slow,
        hold_seconds=hold_seconds,
        exchange_bytes_per_minute=exchange_throughput,
        queue_bytes_per_minute_per_exchange=queue_throughput,
        queue_publishers_per_exchange=queue_publishers,
        latency_ms=latency,
        host_cpu_percent=host_cpu,
        host_memory_mb=host_memory,
    )
    _check(given)
    with target.connect() as cluster:
        cluster.set_rules(queue, given)
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


def in_force(described: QueueDescription) -> ScalingRules:
    """The rules of a queue, set or not; without a name nobody has set any.

    Those that say nothing of the number of exchanges leave the queue's own limit in force.
    """
    given = described.rules
    found = rules_of(given) if given else ScalingRules(name="")
    if "AUTOSCALING_ROQ" in given:
        return found
    return msgspec.structs.replace(found, exchanges_max=described.limits.exchanges_max)


def limit_of(described: QueueDescription) -> int:
    """The limit L of one exchange that is in force, payload bytes per minute."""
    return in_force(described).exchange_bytes_per_minute or described.limits.throughput_bytes


def fields_of(found: ScalingRules, limit: int) -> list[tuple[str, object]]:
    """The rules in force as names and values for people.

    Args:
        found: the rules, see `in_force`.
        limit: L, see `limit_of`.
    """
    exchanges = f"{found.exchanges_min} to {found.exchanges_max}"
    held = f"publishers wait for it, {found.hold_seconds} s if it does not read on"
    slow = held if found.slow_subscriber == "hold" else "nobody waits for it"
    per_exchange = found.queue_bytes_per_minute_per_exchange
    return [
        ("Rules", found.name or _NOT_SET),
        ("Policy", found.policy),
        ("Exchanges", exchanges),
        ("Cool-down", f"{found.cooldown_seconds} s"),
        ("Slow subscriber", slow),
        ("Exchange: limit L", f"{limit:,} bytes/min ({limit / 60e6:.3g} MB/s)"),
        ("Queue: throughput per exchange", _limit(per_exchange, "bytes/min")),
        ("Queue: publishers per exchange", _limit(found.queue_publishers_per_exchange, "")),
        ("Queue: latency", _limit(found.latency_ms, "ms")),
        ("Host: CPU", _limit(found.host_cpu_percent, "%")),
        ("Host: memory", _limit(found.host_memory_mb, "MB")),
    ]


def _check(given: ScalingRules) -> None:
    """What click's types do not see."""
    if given.exchanges_min > given.exchanges_max:
        raise click.UsageError(f"--min {given.exchanges_min} is above --max {given.exchanges_max}")
    try:
        check_name(given.policy, "policy")
    except InvalidName as error:
        raise click.UsageError(f"--policy: {error}") from None


def _limit(value: int, unit: str) -> str:
    return f"{value:,} {unit}".rstrip() if value else "not evaluated"
