"""What Spark is told for each kind of master; pure, so forms that nobody has here are tested."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from roq.errors import ConfigError

_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:\s*,\s*\d+)?\])?\Z")
_CONNECT: Final = "sc://"
_STANDALONE: Final = re.compile(r"spark://[^/\s]+:\d+(?:,[^/\s]+:\d+)*\Z")
_KUBERNETES: Final = re.compile(r"k8s://\S+\Z")
_MEMORY: Final = re.compile(r"\d+[kmgt]?b?\Z", re.IGNORECASE)
IMAGE: Final = "spark.kubernetes.container.image"


class SparkWish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of Spark beside its master.

    Attributes:
        conf: its configuration, by name.
        executors: how many; 0: as the cluster gives them.
        executor_cores: of each; 0: as Spark has it.
        executor_memory: of each, as Spark writes it (`2g`); empty: as Spark has it.
    """

    conf: dict[str, str] = {}
    executors: Annotated[int, Meta(ge=0, le=100_000)] = 0
    executor_cores: Annotated[int, Meta(ge=0, le=10_000)] = 0
    executor_memory: str = ""


def is_local(master: str) -> bool:
    """Whether tasks run in the driver itself."""
    return _LOCAL.match(master) is not None


def slots_of(master: str, cores: int) -> int:
    """Tasks that a local master runs at the same time; 0: it is none.

    Args:
        master: of Spark.
        cores: of this machine, for `local[*]`.
    """
    found = _LOCAL.match(master)
    if found is None:
        return 0
    return cores if found[1] == "*" else int(found[1] or 1)


def master_for(master: str, slots: int) -> str:
    """The master to use: a local one without a number gets as many slots as are needed.

    Raises:
        ConfigError: a local one with too few slots.
    """
    found = _LOCAL.match(master)
    if found is None:
        return master
    given = found[1]
    if given is None or given == "*":
        return f"local[{slots}]"
    if int(given) < slots:
        raise ConfigError(
            f"master {master} has fewer slots than the {slots} that this run needs, for all its "
            f"tasks work at the same time: use local[{slots}] or local[*], or fewer --tasks"
        )
    return master


def settings_for(
    master: str, wish: SparkWish, needed: Mapping[str, str], *, cores: int
) -> dict[str, str]:
    """Spark's configuration: what is needed, what was asked, and what the master wants to hear.

    Args:
        master: of Spark.
        wish: what was asked.
        needed: what must be so; nobody may ask for something else.
        cores: of this machine.

    Raises:
        ConfigError: there is no such master, or it cannot have what was asked.
    """
    _check(master, wish)
    for name, value in needed.items():
        if (asked := wish.conf.get(name, value)) != value:
            raise ConfigError(
                f"--conf {name}={asked}: it has to be {value} here: a task of the load that is "
                "begun again, or runs twice, publishes again"
            )
    settings = {"spark.master": master, **needed}
    if slots := slots_of(master, cores):
        # On a cluster Spark's own number stands: it joins small partitions by itself.
        settings["spark.sql.shuffle.partitions"] = str(max(1, min(slots, cores)))
    if wish.executor_cores:
        settings["spark.executor.cores"] = str(wish.executor_cores)
    if wish.executor_memory:
        settings["spark.executor.memory"] = wish.executor_memory
    if wish.executors and _STANDALONE.match(master):
        # A standalone master counts cores, and makes executors of them.
        each = wish.executor_cores or 1
        settings["spark.executor.cores"] = str(each)
        settings["spark.cores.max"] = str(wish.executors * each)
    elif wish.executors:
        settings["spark.executor.instances"] = str(wish.executors)
    return settings | wish.conf


def _check(master: str, wish: SparkWish) -> None:
    if master.startswith(_CONNECT):
        raise ConfigError(
            f"master {master}: a Spark Connect server runs queries, not the tasks of a load (these "
            "are barrier stages of RDDs): use local[*], spark://…, yarn or k8s://… here; "
            "`roq sim report --remote` evaluates there"
        )
    local = is_local(master)
    if not (local or master == "yarn" or _STANDALONE.match(master) or _KUBERNETES.match(master)):
        raise ConfigError(
            f"there is no Spark master {master!r}: local[*], local[4], spark://host:7077, yarn, or "
            "k8s://https://host:6443"
        )
    if local and (wish.executors or wish.executor_cores or wish.executor_memory):
        raise ConfigError(
            f"master {master} has no executors: tasks run in the driver, which has "
            "`--conf spark.driver.memory=…`"
        )
    if _KUBERNETES.match(master) and IMAGE not in wish.conf:
        raise ConfigError(
            f"master {master}: executors are containers: say of which image, with Spark, Python "
            f"and RoQ in it, by --conf {IMAGE}=…"
        )
    if wish.executor_memory and not _MEMORY.match(wish.executor_memory):
        raise ConfigError(f"--executor-memory {wish.executor_memory}: 512m, 2g, …")


def told(texts: tuple[str, ...]) -> dict[str, str]:
    """Configuration as `NAME=VALUE` says it.

    Raises:
        ConfigError: one has no such form.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigError(f"--conf {text}: NAME=VALUE, and Spark's names begin with `spark.`")
        found[name] = value
    return found
