"""Which scaling rules are in force, what a change makes of them, and how they read."""

from __future__ import annotations

import msgspec
import pytest

from roq.client.admin.rules import changed, fields_of, in_force, limit_of
from roq.client.admin.views import ScalingRules, rules_document
from roq.errors import InvalidRequest
from roq.model import Limits
from roq.protocol.public_answers import QueueDescription


def described(given: ScalingRules | None) -> QueueDescription:
    document = {
        "Name": "orders", "Host": "h", "State": "running", "Running": True, "Durability": "none",
        "Monitor": "", "Statistics": "", "Created": 0.0, "QueueId": "ab", "Exchanges": [],
        "Limits": msgspec.to_builtins(Limits(throughput_bytes=600_000_000, exchanges_max=6)),
        "Rules": rules_document(given) if given is not None else {},
    }  # fmt: skip
    return msgspec.convert(document, QueueDescription)


def test_without_rules_the_defaults_in_force_are_told() -> None:
    told = dict(fields_of(in_force(described(None)), limit_of(described(None))))
    assert told["Rules"] == "(none set: these are the defaults in force)"
    assert told["Policy"] == "balanced"
    assert told["Exchanges"] == "1 to 6"
    assert told["Exchange: limit L"] == "600,000,000 bytes/min (10 MB/s)"
    assert told["Queue: latency"] == "not evaluated"


def test_the_limit_is_that_of_the_rules_if_they_have_one() -> None:
    assert limit_of(described(ScalingRules(name="a"))) == 600_000_000
    mine = ScalingRules(name="a", exchange_bytes_per_minute=7)
    assert limit_of(described(mine)) == 7


def test_an_ordered_queue_has_one_exchange_whatever_its_other_limit_says() -> None:
    ordered = msgspec.structs.replace(described(None), limits=Limits(exchanges_max=6, ordered=1))
    assert in_force(ordered).exchanges_max == 1
    assert changed(ordered, {"policy": "static"}, replace=False).exchanges_max == 1


def test_rules_of_an_old_console_leave_the_queues_own_cap_in_force() -> None:
    old = described(None)
    old.rules.update(
        {"AUTOSCALING_NAME": "old", "AUTOSCALING_XCHANGE": {"AUTOSCALING_XCHANGE_THR": 7}}
    )
    assert (in_force(old).exchanges_max, limit_of(old)) == (6, 7)
    assert in_force(described(ScalingRules(name="new", exchanges_max=9))).exchanges_max == 9


def test_set_rules_are_told_with_their_units() -> None:
    mine = ScalingRules(
        name="mine", policy="spread", exchanges_max=8, cooldown_seconds=30, latency_ms=20,
        host_cpu_percent=80, host_memory_mb=4_000, queue_publishers_per_exchange=3,
    )  # fmt: skip
    told = dict(fields_of(mine, 60_000_000))
    assert told["Rules"] == "mine"
    assert told["Queue: latency"] == "20 ms"
    assert told["Host: memory"] == "4,000 MB"
    assert told["Host: CPU"] == "80 %"
    assert told["Queue: publishers per exchange"] == "3"
    assert told["Cool-down"] == "30 s"
    assert told["Slow subscriber"] == "publishers wait for it, 10 s if it does not read on"
    drop = ScalingRules(name="mine", slow_subscriber="drop")
    assert dict(fields_of(drop, 1))["Slow subscriber"] == "publishers do not wait for it"


def test_what_is_not_given_stays_as_it_is() -> None:
    before = described(ScalingRules(name="mine", latency_ms=20, exchanges_max=8, policy="spread"))
    after = changed(before, {"exchanges_min": 2}, replace=False)
    assert after == ScalingRules(
        name="mine", latency_ms=20, exchanges_max=8, exchanges_min=2, policy="spread"
    )
    assert changed(described(after), {"latency_ms": 0}, replace=False).latency_ms == 0


def test_replacing_gives_all_others_what_is_in_force_without_rules() -> None:
    before = described(ScalingRules(name="mine", latency_ms=20, exchanges_max=8))
    after = changed(before, {"cooldown_seconds": 3}, replace=True)
    assert after == ScalingRules(name="rules", exchanges_max=6, cooldown_seconds=3)


def test_the_first_rules_of_a_queue_keep_its_own_cap() -> None:
    assert changed(described(None), {"latency_ms": 5}, replace=False) == ScalingRules(
        name="rules", exchanges_max=6, latency_ms=5
    )


def test_what_contradicts_the_rules_that_stay_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least 7 exchanges are more than 6 at most"):
        changed(described(None), {"exchanges_min": 7}, replace=False)
