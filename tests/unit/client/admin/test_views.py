"""Management documents as Python values."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from roq.client.admin.views import Listing, ScalingRules, rules_document, rules_of
from roq.model import Limits
from roq.protocol.documents import convert
from roq.protocol.public_answers import FromMemory, QueueDescription


def test_a_description_is_read_from_its_document() -> None:
    document = {
        "RESULT": 0, "COMMENT": "SUCCESS", "Name": "orders", "Host": "h", "State": "running",
        "Running": True, "Durability": "none", "Monitor": "tcp://h:1", "Statistics": "tcp://h:2",
        "Created": 86_400.0, "QueueId": "ab", "Limits": msgspec.to_builtins(Limits(topics=5)),
        "Exchanges": [], "Rules": {},
    }  # fmt: skip
    description = convert(document, QueueDescription)
    assert description.queue_id == "ab"
    assert description.limits == Limits(topics=5)
    assert description.created_at == datetime(1970, 1, 2, tzinfo=UTC)


def test_a_listing_is_a_list_that_says_whether_it_may_be_behind() -> None:
    memory = convert({"Seconds": 12, "Reason": "ZooKeeper cannot be reached"}, FromMemory)
    listing = Listing([1, 2], memory)
    assert listing == [1, 2]
    assert str(listing.from_memory) == (
        "told from memory for 12 s, so it may be behind: ZooKeeper cannot be reached"
    )
    assert Listing([], None).from_memory is None


def test_rules_survive_the_way_there_and_back() -> None:
    rules = ScalingRules(
        name="busy", host_cpu_percent=80, host_memory_mb=100, exchange_bytes_per_minute=5,
        queue_bytes_per_minute_per_exchange=6, queue_publishers_per_exchange=7,
        policy="spread", latency_ms=8, exchanges_min=2, exchanges_max=9, cooldown_seconds=11,
    )  # fmt: skip
    assert rules_of(rules_document(rules)) == rules


def test_absent_rules_are_not_looked_at() -> None:
    assert rules_of({"AUTOSCALING_NAME": "few"}) == ScalingRules(name="few")
