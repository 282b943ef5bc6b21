"""Options are checked before anything is read."""

from __future__ import annotations

import pytest

from roq.errors import ConfigError
from roq.read.events import BelowFloor
from roq.spark.options import EARLIEST, LATEST, Place, read_options

NEEDED = {"cluster": "127.0.0.1:5000", "queue": "orders"}


def test_little_is_needed() -> None:
    options = read_options(dict(NEEDED), streaming=False)
    assert (options.cluster, options.queue, options.prefixes) == (
        ("127.0.0.1:5000",), "orders", (b"",),
    )  # fmt: skip
    assert (options.start, options.end) == (Place(word=EARLIEST), Place(word=LATEST))
    assert options.fail_on_data_loss


def test_a_stream_begins_at_the_latest() -> None:
    assert read_options(dict(NEEDED), streaming=True).start == Place(word=LATEST)


def test_what_is_done_below_the_floor_is_one_of_three() -> None:
    assert read_options(dict(NEEDED), streaming=True).below_floor is BelowFloor.ERROR
    given = {**NEEDED, "belowFloor": "Latest"}
    assert read_options(given, streaming=True).below_floor is BelowFloor.LATEST
    with pytest.raises(ConfigError, match="belowFloor"):
        read_options({**NEEDED, "belowFloor": "newest"}, streaming=True)


def test_names_of_options_are_taken_in_any_case() -> None:
    given = {"Cluster": "a:1, b:2", "QUEUE": "orders", "failondataloss": "FALSE"}
    options = read_options(given, streaming=True)
    assert options.cluster == ("a:1", "b:2")
    assert not options.fail_on_data_loss


def test_a_queue_may_be_given_as_the_path() -> None:
    given = {"cluster": "a:1", "path": "orders"}
    assert read_options(given, streaming=False).queue == "orders"


def test_several_topics() -> None:
    options = read_options({**NEEDED, "topics": '["eu.", "us."]'}, streaming=False)
    assert options.prefixes == (b"eu.", b"us.")


def test_offsets_by_log() -> None:
    options = read_options({**NEEDED, "startingOffsets": '{"1:65537": 120}'}, streaming=True)
    assert options.start == Place(offsets={(1, 65537): 120})


def test_losses_are_accepted_by_log() -> None:
    given = '{"1:65537": "all", "2:65538": 120}'
    options = read_options({**NEEDED, "acceptedLoss": given}, streaming=True)
    assert options.accepted == {(1, 65537): None, (2, 65538): 120}
    assert read_options(dict(NEEDED), streaming=True).accepted == {}


@pytest.mark.parametrize("time", ["1970-01-01T00:00:02", "1970-01-01T01:00:02+01:00"])
def test_a_time_without_a_zone_is_utc(time: str) -> None:
    options = read_options({**NEEDED, "startingTime": time}, streaming=True)
    assert options.start == Place(time_us=2_000_000)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"queue": "q"}, "cluster"),
        ({"cluster": " , ", "queue": "q"}, "cluster"),
        ({"cluster": "a:1"}, "queue"),
        ({**NEEDED, "queue": "a/b"}, "queue"),
        ({**NEEDED, "startingOfsets": "latest"}, "startingofsets"),
        ({**NEEDED, "topic": "a", "topics": '["b"]'}, "topics"),
        ({**NEEDED, "topics": "a,b"}, "JSON list"),
        ({**NEEDED, "topics": "[]"}, "JSON list"),
        ({**NEEDED, "topic": "x" * 300}, "255 bytes"),
        ({**NEEDED, "startingOffsets": "yesterday"}, "startingOffsets"),
        ({**NEEDED, "startingOffsets": '{"1": 5}'}, "startingOffsets"),
        ({**NEEDED, "startingOffsets": '{"1:2": -5}'}, "startingOffsets"),
        ({**NEEDED, "startingOffsets": '{"1:2": true}'}, "startingOffsets"),
        ({**NEEDED, "startingOffsets": f'{{"1:{"2" * 5_000}": 5}}'}, "startingOffsets"),
        ({**NEEDED, "acceptedLoss": "all"}, "acceptedLoss"),
        ({**NEEDED, "acceptedLoss": '["1:2"]'}, "acceptedLoss"),
        ({**NEEDED, "acceptedLoss": '{"x1": "all"}'}, "acceptedLoss"),
        ({**NEEDED, "acceptedLoss": '{"1:2": "some"}'}, "acceptedLoss"),
        ({**NEEDED, "acceptedLoss": '{"1:2": -1}'}, "acceptedLoss"),
        ({**NEEDED, "acceptedLoss": '{"1:2": true}'}, "acceptedLoss"),
        ({**NEEDED, "startingTime": "noon"}, "startingTime"),
        ({**NEEDED, "startingTime": "2026-01-01", "startingOffsets": "latest"}, "one of them"),
        ({**NEEDED, "failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({**NEEDED, "maxBatchesPerTrigger": "0"}, "maxBatchesPerTrigger"),
        ({**NEEDED, "partitionsPerExchange": "many"}, "partitionsPerExchange"),
        ({**NEEDED, "timeoutSeconds": "nan"}, "timeoutSeconds"),
        ({**NEEDED, "endingOffsets": "latest"}, "no end"),
    ],
)
def test_what_makes_no_sense_is_named(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_options(given, streaming=True)


def test_a_batch_query_does_not_begin_at_the_latest_or_end_at_the_earliest() -> None:
    with pytest.raises(ConfigError, match="reads nothing"):
        read_options({**NEEDED, "startingOffsets": "latest"}, streaming=False)
    with pytest.raises(ConfigError, match="earliest"):
        read_options({**NEEDED, "endingOffsets": "earliest"}, streaming=False)


def test_a_log_is_not_read_backwards() -> None:
    given = {**NEEDED, "startingOffsets": '{"1:2": 5, "3:4": 9}'}
    read_options({**given, "endingOffsets": '{"1:2": 5}'}, streaming=False)
    with pytest.raises(ConfigError, match=r"x3 \(generation 4\) would be read from 9 up to 8"):
        read_options({**given, "endingOffsets": '{"3:4": 8}'}, streaming=False)


def test_a_query_that_works_for_a_group_begins_where_that_is() -> None:
    given = {**NEEDED, "group": "billing", "groupPosition": '{"1:65537": "AAE="}'}
    options = read_options(given, streaming=False)
    assert (options.group, options.position) == ("billing", {(1, 65537): b"\x00\x01"})
    for other in ("topic", "topics", "startingOffsets", "startingTime", "belowFloor"):
        with pytest.raises(ConfigError, match=f"group, {other}: give one of them"):
            read_options({**given, other: "latest"}, streaming=False)
    with pytest.raises(ConfigError, match="group: "):
        read_options({**NEEDED, "group": "a group"}, streaming=False)
    for wrong in ("{", '{"1:65537": 7}', '{"1:65537": "-"}', '{"x": "AAE="}'):
        with pytest.raises(ConfigError, match=r"is set by roq\.spark\.TakenGroup"):
            read_options({**given, "groupPosition": wrong}, streaming=False)
