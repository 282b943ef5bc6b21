"""Which messages share a batch, and that none is lost when a batch is closed in mid-append."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterable, Iterator
from datetime import timedelta

import pytest
from publisher_script import NoWaiter

from roq.client.publish.batching import (
    KEYS_MAX,
    PROBE_MESSAGES,
    Attributed,
    OneWay,
    OpenBatch,
    Packer,
    lifetime_ms,
    part_attributes,
    payload_of,
    size_of,
    with_attributes,
)
from roq.client.publish.receipt import Receipt
from roq.errors import InvalidName, InvalidRequest
from roq.model import Limits
from roq.protocol.attributes import Attributes, BatchAttributes
from roq.protocol.columns import (
    KEY_GROUPS,
    key_group,
    key_hash,
    pack_column,
    pack_keys,
    pack_sent_again,
    read_column,
    read_lifetime,
)

LIMITS = Limits(batch_messages=100, batch_bytes=1_000, message_bytes=10_000)


def packer(limits: Limits = LIMITS, linger: float = 0.001) -> Packer:
    return Packer(lambda: Receipt(NoWaiter()), limits, linger)


def test_small_payloads_fill_a_batch_by_number() -> None:
    pack = packer()
    batch = pack.open("t", [b"x"], 0.0)
    for _ in range(99):
        assert not pack.is_full(batch)
        assert pack.add(batch, b"x")
    assert pack.is_full(batch)
    assert not pack.fits(batch, 1)
    assert pack.close(batch) == [b"x"] * 100


def test_large_payloads_fill_a_batch_by_size() -> None:
    pack = packer()
    batch = pack.open("t", [b"x" * 400], 0.0)
    assert pack.fits(batch, 400)
    pack.add(batch, b"x" * 400)
    assert not pack.fits(batch, 400)
    assert not pack.is_full(batch)


def test_a_payload_above_the_batch_size_fills_a_batch_alone() -> None:
    pack = packer()
    assert pack.is_full(pack.open("t", [b"x" * 5_000], 0.0))


def test_the_fast_path_takes_no_more_than_the_largest_message() -> None:
    pack = packer(Limits(message_bytes=3, batch_bytes=1_000, batch_messages=10))
    assert pack.open("t", [b""], 0.0).small == 3


def test_a_batch_first_looks_at_the_clock_early_and_then_by_its_pace() -> None:
    pack = packer(Limits(batch_messages=500), linger=0.001)
    batch = pack.open("t", [b"x"] * 1, 10.0)
    assert batch.limit == PROBE_MESSAGES
    for _ in range(PROBE_MESSAGES - 1):
        pack.add(batch, b"x")
    assert not pack.stretch(batch, 10.0001)
    assert batch.limit == pytest.approx(160, abs=2), "ten times as many fit into the linger"
    assert pack.stretch(batch, 10.0011)


def test_a_quick_batch_is_not_looked_at_again_before_it_is_full() -> None:
    pack = packer(Limits(batch_messages=500))
    batch = pack.open("t", [b"x"] * PROBE_MESSAGES, 10.0)
    assert not pack.stretch(batch, 10.0)
    assert batch.limit == 500


def test_a_batch_may_linger_for_ever() -> None:
    pack = packer(Limits(batch_messages=500), linger=math.inf)
    batch = pack.open("t", [b"x"] * PROBE_MESSAGES, 10.0)
    assert not pack.stretch(batch, 11.0)
    assert batch.limit == 500


def test_closing_forgets_the_batch_and_shutting_only_ends_the_fast_path() -> None:
    pack = packer()
    batch = pack.open("t", [b"x"], 0.0)
    pack.shut(batch)
    assert "t" not in pack.fast
    assert pack.get("t") is batch
    pack.close(batch)
    assert pack.get("t") is None
    assert batch.limit == 0


def test_what_is_appended_after_closing_is_given_back_to_its_appender() -> None:
    pack = packer()
    batch = pack.open("t", [b"a"], 0.0)
    assert pack.close(batch) == [b"a"]
    late = bytes([98])
    batch.items.append(late)
    assert not pack.keeps(batch, late)
    assert batch.items == [b"a"]


def test_closing_ends_the_fast_path_before_it_copies() -> None:
    class Watched(list[bytes]):
        def __getitem__(self, index):
            limits.append(batch.limit)
            return super().__getitem__(index)

    limits: list[int] = []
    pack = packer()
    batch = pack.open("t", Watched([b"a"]), 0.0)
    assert pack.close(batch) == [b"a"]
    assert limits == [0], "or an append during the copy would be neither in it nor noticed"


def test_what_is_appended_beyond_a_full_batch_is_given_back() -> None:
    pack = packer(Limits(batch_messages=2))
    batch = pack.open("t", [b"a", b"b"], 0.0)
    batch.items.append(b"c")
    assert not pack.keeps(batch, b"c")
    assert pack.close(batch) == [b"a", b"b"]


def test_what_was_in_time_is_kept() -> None:
    pack = packer()
    batch = pack.open("t", [b"a"], 0.0)
    batch.items.append(b"b")
    assert pack.close(batch) == [b"a", b"b"]
    assert pack.keeps(batch, b"b")


def test_extending_appends_in_order() -> None:
    pack = packer()
    batch = pack.open("t", [b"a"], 3.0)
    assert pack.extend(batch, [b"b", b"c"])
    assert pack.close(batch) == [b"a", b"b", b"c"]


def test_an_extension_counts_only_the_sizes_that_are_new() -> None:
    pack = packer(Limits(batch_messages=10, batch_bytes=100, message_bytes=100))
    batch = pack.open("t", [b"x" * 20], 0.0)
    assert pack.extend(batch, [b"y" * 10, b"z" * 30])
    assert batch.big_bytes == 50


class Overtaken(list[bytes]):
    """Another thread appends before or after whatever is added to this list."""

    def __init__(self, items: list[bytes], *, before: list[bytes], after: list[bytes]) -> None:
        super().__init__(items)
        self.before = before
        self.after = after

    def extend(self, items: Iterable[bytes]) -> None:
        super().extend([*self.before, *items, *self.after])


def test_an_extension_that_no_longer_fits_leaves_what_was_quicker() -> None:
    pack = packer(Limits(batch_messages=4))
    items = Overtaken([b"a"], before=[b"quick"], after=[b"late"])
    batch = pack.open("t", items, 0.0)
    assert not pack.extend(batch, [b"b", b"c", b"d"])
    assert pack.keeps(batch, b"late")
    assert pack.close(batch) == [b"a", b"quick", b"late"]


def test_an_extension_that_fits_stays_before_what_comes_too_late() -> None:
    pack = packer(Limits(batch_messages=4))
    batch = pack.open("t", Overtaken([b"a"], before=[], after=[b"late"]), 0.0)
    assert pack.extend(batch, [b"b", b"c", b"d"])
    assert not pack.keeps(batch, b"late")
    assert pack.close(batch) == [b"a", b"b", b"c", b"d"]


def test_an_extension_is_not_taken_for_an_equal_payload_of_a_quicker_thread() -> None:
    pack = packer(Limits(batch_messages=2))
    quick, mine = Attributed.of(b"b", Attributes("k")), Attributed.of(b"b", Attributes("other"))
    batch = pack.open("t", Overtaken([b"a"], before=[quick], after=[]), 0.0)
    assert not pack.extend(batch, [mine]), "else it would be lost"
    assert pack.keeps(batch, quick)
    assert pack.close(batch)[1] is quick


def test_an_extension_does_not_undo_that_another_thread_has_appended_a_key() -> None:
    class Overtaken(list[bytes]):
        def __getitem__(self, index):
            assert pack.keyed(batch, b"x", "k") is not None
            return super().__getitem__(index)

    pack = packer(Limits(batch_messages=10, batch_bytes=1_000))
    batch = pack.open("t", [b"a"], 0.0)
    assert pack.extend(batch, Overtaken([b"b"]))
    assert batch.attributed, "or the key would be left out"


def test_many_payloads_join_only_what_they_fit_into() -> None:
    pack = packer()
    batch = pack.open("t", [b"x"], 0.0)
    assert pack.joins(batch, [b"x"] * 99, 99)
    assert not pack.joins(batch, [b"x"] * 100, 100)
    assert not pack.joins(batch, [b"x" * 995], 995)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


class Race:
    """Several threads append as `Publisher.publish` does while another one keeps closing."""

    def __init__(self, threads: int, each: int) -> None:
        self.pack = packer(Limits(batch_messages=50))
        self.lock = threading.Lock()
        self.sealed: list[bytes] = []
        self.threads = threads
        self.each = each
        self.done = threading.Event()

    def close(self) -> None:
        batch = self.pack.get("t")
        if batch is not None:
            payloads = self.pack.close(batch)
            assert batch.attributed or Attributed not in set(map(type, payloads))
            self.sealed.extend(payloads)

    def append(self, payload: bytes) -> None:
        batch: OpenBatch | None = self.pack.fast.get("t")
        if batch is not None:
            if payload.endswith(b"7"):
                payload = self.pack.keyed(batch, payload, "k") or payload
            items = batch.items
            items.append(payload)
            if len(items) < batch.limit:
                return
            with self.lock:
                if self.pack.keeps(batch, payload):
                    return
        with self.lock:
            self.close()
            self.pack.open("t", [payload], 0.0)

    def publish(self, name: int) -> None:
        for number in range(self.each):
            self.append(b"%d %d" % (name, number))

    def interrupt(self) -> None:
        while not self.done.is_set():
            with self.lock:
                self.close()

    def run(self) -> None:
        closer = threading.Thread(target=self.interrupt)
        threads = [threading.Thread(target=self.publish, args=(n,)) for n in range(self.threads)]
        closer.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.done.set()
        closer.join()
        self.close()


@pytest.mark.usefixtures("quick_switches")
def test_appends_without_a_lock_lose_nothing_while_another_thread_closes() -> None:
    race = Race(threads=3, each=4_000)
    race.run()
    assert len(race.sealed) == 3 * 4_000
    for name in range(3):
        prefix = b"%d " % name
        own = [int(item.split()[1]) for item in race.sealed if item.startswith(prefix)]
        assert own == list(range(4_000)), "each thread's messages in its own order"


def test_attributes_count_for_the_size_of_a_batch() -> None:
    pack = packer()
    heavy = Attributed.of(b"x", Attributes("k" * 400))
    assert 401 <= size_of(heavy) < 450
    batch = pack.open("t", [b"x"], 0.0)
    assert pack.fits(batch, size_of(heavy))
    assert pack.add(batch, heavy)
    assert pack.add(batch, b"plain")
    assert not pack.fits(batch, 600)
    assert batch.attributed


def test_payloads_are_parted_from_their_attributes() -> None:
    payloads = [b"a", Attributed.of(b"b", Attributes("k")), b"c"]
    plain, packed, columns = part_attributes(payloads)
    assert plain == [b"a", b"b", b"c"]
    assert {type(each) for each in plain} == {bytes}
    assert packed is not None
    keys = pack_keys({key_hash("k")})
    assert columns == pack_column(KEY_GROUPS, bytes((0, key_group("k"), 0))) + keys
    assert part_attributes([b"a"]) == ([b"a"], None, b"")
    given = BatchAttributes(packed, 10, 3)
    assert [given.of(sequence).key for sequence in (10, 11, 12, 13)] == [None, "k", None, None]


def test_messages_with_a_key_are_appended_without_a_look_as_far_as_they_are_small() -> None:
    pack = packer(Limits(batch_messages=10, batch_bytes=1_000))
    batch = pack.open("t", [b"x"], 0.0)
    first, again = pack.keyed(batch, b"a", "k"), pack.keyed(batch, b"b", "k")
    assert first is not None
    assert again is not None
    assert first.beside is again.beside, "what is packed of a key is packed once"
    assert batch.attributed
    assert pack.keyed(batch, b"x" * (101 - first.beside.size), "k") is None, "key and all is large"
    assert pack.keyed(batch, b"x" * (100 - first.beside.size), "k") is not None
    for wrong in (7, ["k"]):
        with pytest.raises(TypeError, match="a key is text"):
            pack.keyed(batch, b"a", wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidName):
        pack.keyed(batch, b"a", "k" * 1_025)


def test_a_publisher_remembers_only_so_many_keys() -> None:
    pack = packer(Limits(batch_messages=10, batch_bytes=1_000))
    batch = pack.open("t", [b"x"], 0.0)
    first = pack.keyed(batch, b"a", "0")
    assert first is not None
    for number in range(KEYS_MAX):
        each = pack.keyed(batch, b"a", str(number))
        assert each is not None
        assert each.beside.attributes.key == str(number)
    last = pack.keyed(batch, b"a", str(KEYS_MAX))
    again = pack.keyed(batch, b"a", "0")
    assert last is not None
    assert again is not None
    assert again.beside is not first.beside
    assert pack.keyed(batch, b"a", str(KEYS_MAX)).beside is last.beside  # type: ignore[union-attr]


def test_messages_of_one_batch_have_one_time_to_live() -> None:
    pack = packer()
    short = payload_of(b"a", None, 500, wait=True)
    batch = pack.open("t", [short], 0.0)
    assert "t" not in pack.fast, "what has none is not appended without a look"
    assert pack.fits(batch, 10, 500)
    assert not pack.fits(batch, 10, 501)
    assert not pack.fits(batch, 10)
    assert not pack.joins(batch, [b"b"], 1)
    assert pack.add(batch, payload_of(b"b", Attributes(key="k"), 500, wait=True))
    plain, packed, area = part_attributes(pack.close(batch))
    assert (plain, read_lifetime(area)) == ([b"a", b"b"], 500)
    assert read_column(area, KEY_GROUPS, 2) == bytes([0, key_group("k")])
    assert packed is not None
    assert BatchAttributes(packed, 0, 2).of(1).key == "k"
    assert part_attributes([short]) == ([b"a"], None, area[:10])
    plain_batch = pack.open("t", [b"x"], 0.0)
    assert pack.fits(plain_batch, 1)
    assert not pack.fits(plain_batch, 1, 500)
    assert all(each.beside.lifetime_ms == 7 for each in with_attributes([b"a", b"b"], None, 7))  # type: ignore[union-attr]


def test_a_payload_without_anything_is_bytes() -> None:
    assert type(payload_of(bytearray(b"a"), None, 0, wait=True)) is bytes
    assert type(payload_of(b"a", None, 0, wait=False)) is OneWay


def test_times_to_live_are_checked() -> None:
    assert lifetime_ms(None) == 0
    assert lifetime_ms(0.001) == 1
    assert lifetime_ms(timedelta(days=1)) == 86_400_000
    for bad in (0, -1.0, 0.0001, 1e12, float("nan"), float("inf"), timedelta(days=4_000)):
        with pytest.raises(InvalidRequest, match="ttl is seconds"):
            lifetime_ms(bad)
    with pytest.raises(InvalidRequest, match="say one of them"):
        lifetime_ms(1.0, delayed=True)


def test_a_batch_says_that_it_has_a_request_that_is_sent_once_more() -> None:
    told = Attributes(None, (), {"roq.request.before": "x1-1-1-1"}, 0)
    again = Attributed.sent_again(b"b", told)
    _, packed, area = part_attributes([b"a", again])
    assert area == pack_sent_again()
    assert packed is not None
    assert BatchAttributes(packed, 0, 2).of(1) == told
    assert part_attributes([Attributed.of(b"b", told)])[2] == b"", "another one says nothing"
