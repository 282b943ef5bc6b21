"""What Spark is told for each kind of master, those that nobody has here among them."""

from __future__ import annotations

import pytest

from roq.errors import ConfigError
from roq.simulation.lab.live.tasks import ONCE
from roq.simulation.lab.masters import IMAGE, SparkWish, master_for, settings_for, told


def settings(master: str, **wish: object) -> dict[str, str]:
    return settings_for(master, SparkWish(**wish), {}, cores=8)  # type: ignore[arg-type]


def test_local_masters_get_the_slots_that_are_needed() -> None:
    assert master_for("local[*]", 4) == master_for("local", 4) == "local[4]"
    assert master_for("local[6]", 4) == "local[6]"
    assert master_for("spark://there:7077", 4) == "spark://there:7077"
    with pytest.raises(ConfigError, match=r"use local\[4\]"):
        master_for("local[3]", 4)


def test_shuffles_are_as_wide_as_this_machine_and_on_a_cluster_as_spark_has_them() -> None:
    name = "spark.sql.shuffle.partitions"
    masters = ("local", "local[3]", "local[*]", "local[90]")
    assert [settings(master)[name] for master in masters] == ["1", "3", "8", "8"]
    assert name not in settings("spark://there:7077")
    assert settings("local[3]", conf={name: "50"})[name] == "50"


def test_each_kind_of_cluster_hears_of_executors_in_its_own_words() -> None:
    sizes = {"executors": 3, "executor_cores": 2, "executor_memory": "2g"}
    assert settings("spark://one:7077,two:7077", **sizes) == {
        "spark.master": "spark://one:7077,two:7077",
        "spark.cores.max": "6", "spark.executor.cores": "2", "spark.executor.memory": "2g",
    }  # fmt: skip
    assert settings("spark://one:7077", executors=3)["spark.cores.max"] == "3"
    assert settings("yarn", **sizes) == {
        "spark.master": "yarn", "spark.executor.instances": "3", "spark.executor.cores": "2",
        "spark.executor.memory": "2g",
    }  # fmt: skip
    assert settings("k8s://https://there:6443", conf={IMAGE: "roq:1"}, **sizes) == {
        "spark.master": "k8s://https://there:6443", IMAGE: "roq:1",
        "spark.executor.instances": "3", "spark.executor.cores": "2",
        "spark.executor.memory": "2g",
    }  # fmt: skip


def test_what_was_asked_by_name_counts_more_but_for_what_has_to_be() -> None:
    wish = SparkWish(executors=3, conf={"spark.cores.max": "4", "spark.speculation": "false"})
    found = settings_for("spark://there:7077", wish, ONCE, cores=2)
    assert (found["spark.cores.max"], found["spark.task.maxFailures"]) == ("4", "1")
    wish = SparkWish(conf={"spark.speculation": "true"})
    with pytest.raises(ConfigError, match=r"spark.speculation=true: it has to be false here"):
        settings_for("yarn", wish, ONCE, cores=2)


@pytest.mark.parametrize(
    ("master", "wish", "words"),
    [
        ("sc://there:15002", {}, r"roq sim report --remote"),
        ("there:7077", {}, r"no Spark master 'there:7077': local\[\*\]"),
        ("local[2", {}, "no Spark master"),
        ("local[2]", {"executors": 2}, "has no executors"),
        ("k8s://https://there:6443", {}, f"--conf {IMAGE}="),
        ("yarn", {"executor_memory": "much"}, "512m, 2g"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(
    master: str, wish: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(master, **wish)


def test_configuration_has_names_of_spark() -> None:
    assert told(("spark.a=b=c", "spark.d=")) == {"spark.a": "b=c", "spark.d": ""}
    for text in ("spark.a", "hadoop.a=b"):
        with pytest.raises(ConfigError, match="NAME=VALUE"):
            told((text,))
