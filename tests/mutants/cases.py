"""The mistakes: one line of a module each, and the quick tests that are to notice it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EXCHANGE: Final = ("tests/unit/exchange", "tests/property/test_exchange_core.py")
RING: Final = ("tests/unit/log", "tests/property/test_log_contract.py")
DISK: Final = (
    "tests/unit/log",
    "tests/property/test_log_contract.py",
    "tests/property/test_power_loss.py",
)
CHAIN: Final = (
    "tests/unit/read/test_offset_chain.py",
    "tests/unit/read/test_reader.py",
    "tests/property/test_reception.py",
)
MERGE: Final = (
    "tests/unit/client/subscribe/test_merge.py",
    "tests/unit/client/subscribe/test_losses.py",
    "tests/unit/client/subscribe/test_stream.py",
    "tests/property/test_loss_rules.py",
    "tests/property/test_reception.py",
)
OUTBOX: Final = (
    "tests/unit/client/publish/test_send_window.py",
    "tests/unit/client/publish/test_replay.py",
    "tests/unit/client/publish/test_machine.py",
    "tests/unit/client/publish/test_links.py",
    "tests/unit/client/publish/test_relocation.py",
    "tests/unit/client/publish/test_link_chooser.py",
    "tests/property/test_link.py",
)
GROUPS: Final = (
    "tests/unit/log/test_groups.py",
    "tests/unit/log/test_open_batches.py",
    "tests/unit/log/test_free_messages.py",
    "tests/unit/log/test_keyed_messages.py",
    "tests/unit/log/test_key_groups.py",
    "tests/unit/log/test_ranked_messages.py",
    "tests/unit/log/test_group_filter.py",
    "tests/unit/exchange/test_consumers.py",
    "tests/unit/client/consume",
    "tests/property/test_groups.py",
    "tests/property/test_consumers.py",
)
REQUESTS: Final = (
    "tests/unit/log/test_service_group.py",
    "tests/unit/exchange/test_services.py",
    "tests/unit/exchange/test_requesters.py",
    "tests/unit/client/request",
    "tests/property/test_services.py",
)
PROTOCOL: Final = ("tests/unit/protocol",)
SILENCE: Final = ("tests/unit/client/subscribe/test_silence.py",)
PACING: Final = (
    "tests/unit/client/subscribe/test_backpressure.py",
    "tests/unit/client/subscribe/test_machine.py",
)

SCHEDULES: Final = ("tests/unit/jobs/test_timetable.py", "tests/unit/jobs/test_schedules.py")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake.

    Attributes:
        file: of the module.
        old: text that stands there once.
        new: what takes its place.
        tests: that are to notice it.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.file}: {self.old.strip().splitlines()[0]}"


def _of(file: str, tests: tuple[str, ...], *changes: tuple[str, str]) -> tuple[Mutant, ...]:
    return tuple(Mutant(file, old, new, tests) for old, new in changes)


MUTANTS: Final[tuple[Mutant, ...]] = (
    *_of(
        "roq/exchange/intake.py",
        EXCHANGE,
        ("            number != link.expected\n", "            number < link.expected\n"),
        ("            or owner != link.owner\n", ""),
        ("            or not 0 < count <= self._count_max\n", "            or count <= 0\n"),
        ("            or size > self._fast_bytes\n", ""),
        ("            stream.next = after\n", "            stream.next = after - count\n"),
        ("        link.messages += count\n", "        link.messages += 1\n"),
        (
            "            self._counters.duplicates += 1\n            self._owe_ack(link)\n",
            "            self._counters.duplicates += 1\n",
        ),
        ("        told = link.reset_for == link.expected\n", "        told = False\n"),
        ("        if link.route is None or link.told:\n", "        if link.route is None:\n"),
        ("            self._gap(link, header.link_number)\n", "            pass\n"),
    ),
    *_of(
        "roq/log/cursors.py",
        EXCHANGE,
        ("offset < min(until, self._log.committed) else None", "offset < until else None"),
        ("        end = min(self._until, log.committed)\n",
         "        end = min(self._until, log.end)\n"),
    ),
    *_of(
        "roq/exchange/publishers.py",
        EXCHANGE,
        ("                link.expected = header.link_number + 1\n",
         "                link.expected += 0\n"),
        ("                link.committed = header.link_number\n",
         "                link.committed = 0\n"),
        ("            if header.epoch > link.epoch or", "            if link.epoch < 0 or"),
        ("            stream.next = max(stream.next, following)\n",
         "            stream.next = max(stream.next, 0)\n"),
        ("                link.expected = state.expected\n", ""),
    ),
    *_of(
        "roq/exchange/commit.py",
        EXCHANGE,
        ("        while self._marks and self._marks[0].end <= self._log.committed:\n",
         "        while self._marks and self._marks[0].end <= self._log.end:\n"),
        ("                if link.stay == stay:\n", "                if stay >= 0:\n"),
        ("        if fits and (not held or held + size <= self._most):\n",
         "        if held + size >= 0:\n"),
        ("        offsets = range(self.shown, min(self.shown + most, self._log.committed))\n",
         "        offsets = range(self.shown, min(self.shown + most, self._log.end))\n"),
        ("        last.end = self._log.end\n", "        last.end += 0\n"),
        ("    following = max(since, log.floor)\n", "    following = max(since + 1, log.floor)\n"),
        ("return link.expected - 1 if self._log.committed >= self._log.end else link.committed",
         "return link.expected - 1"),
    ),
    *_of(
        "roq/exchange/readers.py",
        EXCHANGE,
        ("prefixes, end = checked_prefixes(request.prefixes), self._log.committed",
         "prefixes, end = checked_prefixes(request.prefixes), self._log.end"),
        ("offset=min(self._log.seek(request.time_us), end)",
         "offset=self._log.seek(request.time_us)"),
    ),
    *_of(
        "roq/log/ring.py",
        RING,
        (
            "self.capacity:\n            self._evict()\n        return frame\n",
            "2 * self.capacity:\n            self._evict()\n        return frame\n",
        ),
        ("            self._topics.move_to_end(topic)\n", ""),
        ("            self._forgotten_below = oldest.last + 1\n",
         "            self._forgotten_below = oldest.last\n"),
        ("            if oldest.last >= self._oldest_needed():\n",
         "            if oldest.last > self.end:\n"),
        ("            log.start += 1\n", ""),
        ("            if log.last < since:\n", "            if log.last <= since:\n"),
        ("            if log.last < until:\n", "            if log.last <= until:\n"),
        ("bisect_left(log.offsets, at_least, lo=log.start)",
         "bisect_left(log.offsets, at_least + 1, lo=log.start)"),
        ("        self._time_us = max(self._time_us, time_us)\n",
         "        self._time_us = time_us\n"),
    ),
    *_of(
        "roq/read/offset_chain.py",
        CHAIN,
        ("elif previous != NONE and previous >= low:", "elif previous != NONE and previous > low:"),
        ("        if offset < low:\n", "        if offset < low - 1:\n"),
        ("            self._repair(topic, low, previous + 1)\n",
         "            self._repair(topic, low, previous)\n"),
        ("        elif repair.start < repair.to <= floor:\n", "        elif repair.to < 0:\n"),
        ("            if repair.tries > TRIES_MAX:\n", "            if repair.tries < 0:\n"),
        ("        self.held_bytes += size\n", ""),
        (
            "            repair.start = offset + 1\n            repair.tries = repair.idle = 0\n",
            "            repair.start = offset\n            repair.tries = repair.idle = 0\n",
        ),
        ("        return head < self._low(topic)\n", "        return head <= self._low(topic)\n"),
    ),
    *_of(
        "roq/client/subscribe/merge.py",
        MERGE,
        ("        first = header.first_sequence + skip\n",
         "        skip = 0\n        first = header.first_sequence\n"),
        ("        stream.expected = max(stream.expected, header.next_sequence)\n",
         "        stream.expected = max(stream.expected, header.first_sequence + 1)\n"),
        ("        while held and held[0].first <= stream.expected:\n",
         "        while held and held[0].first < stream.expected:\n"),
        ("                self._lose(stream, first, header.count - skip, str(error))\n", ""),
        ("            self.held_bytes -= head.size\n", ""),
    ),
    *_of(
        "roq/client/subscribe/losses.py",
        MERGE,
        ("        if now >= max(at, self._read_since) + patience:\n",
         "        if now >= at + patience:\n"),
        ("        silent = self.durable and any(as_of < since for as_of in verified.values())\n",
         "        silent = False\n"),
        ("        silent = self.durable and any(as_of < since for as_of in verified.values())\n",
         "        silent = self.durable\n"),
        ("            if held.arrived <= as_of and held.bound > stream.expected:\n",
         "            if held.bound > stream.expected:\n"),
        ("        self._replayed_at = max(self._replayed_at, now + REPLAY_SECONDS)\n",
         "        self._replayed_at = max(self._replayed_at, now)\n"),
        ("            as_of = min(as_of, self._known_at)\n", "            pass\n"),
        ("        return any(held.arrived <= now - patience for held in stream.held)\n",
         "        return True\n"),
    ),
    *_of(
        "roq/client/publish/send_window.py",
        OUTBOX,
        (("        return self.owed_batches < self.window_batches and self.owed_bytes < "
         "self.window_bytes\n"),
         "        return self.owed_batches < self.window_batches\n"),
        (("                self._sent >= self.window_batches or self._sent_bytes >= "
         "self.window_bytes\n"),
         "                self._sent < 0\n"),
        ("        again = min(number - self.low, self._sent)\n", "        again = self._sent\n"),
        ("            buffer.add(sealed)\n", ""),
        ("        sealed.strayed |= sealed.sent\n", ""),
        ("        stream.next_sequence += count\n", "        stream.next_sequence += 1\n"),
        ("            self.rewind(number)\n            return True\n", "            return True\n"),
    ),
    *_of(
        "roq/protocol/batch.py",
        PROTOCOL,
        ("    if _checksum(body) & 0xFFFFFFFF != checksum:\n", "    if checksum < 0:\n"),
        ("    if len(payloads) != count:\n", "    if count < 0:\n"),
        ("    if count > COUNT_MAX or first_sequence + count > SEQUENCE_MAX:\n",
         "    if count > COUNT_MAX:\n"),
    ),
    *_of(
        "roq/client/subscribe/backpressure.py",
        PACING,
        ("        elif now >= self._look_at:\n", "        elif now < 0:\n"),
        ("        if now >= self._moved_at + STALL_SECONDS:\n", "        if now < 0:\n"),
        ("source for source, size in brought.items() if size > awaited[source]",
         "source for source, size in brought.items() if size < awaited[source]"),
    ),
    *_of(
        "roq/exchange/fetches.py",
        EXCHANGE,
        ("        parts = (FETCHED_ENTRY + fetch.reader, ", "        parts = (FETCHED_ENTRY, "),
        ("                line.fetches[reader] = fetch\n",
         "                line.fetches[b\"\"] = fetch\n"),
        ("        if line.answers:\n            return Piece(",
         "        if line.answers and not line.fetches:\n            return Piece("),
    ),
    *_of(
        "roq/client/publish/machine.py",
        OUTBOX,
        ("        self._sealing = batch.receipt\n        self.changing = True\n",
         "        self._sealing = batch.receipt\n"),
        ("attributes, extensions)\n        self.unsent = True\n", "attributes, extensions)\n"),
        ("now >= batch.opened_at + patience or packer.is_full(batch)", "packer.is_full(batch)"),
        ("            tally.give_up(self.messages - told, unknown)\n", ""),
    ),
    *_of(
        "roq/client/publish/link.py",
        OUTBOX,
        ("        return [] if self.phase is LinkPhase.IDLE else self.open(now)\n",
         "        return []\n"),
        ("        if (ready.exchange, ready.generation) != self.log:\n",
         "        if ready.exchange != self.log.number:\n"),
    ),
    *_of(
        "roq/read/reader.py",
        CHAIN,
        ("            or generation != self._generation\n", ""),
    ),
    *_of(
        "roq/exchange/readers.py",
        EXCHANGE,
        ("        if generation != self._log.generation:\n", "        if generation < 0:\n"),
    ),
    *_of(
        "roq/client/subscribe/silence.py",
        SILENCE,
        ("        if answered_at is None:\n", "        if answered_at == 0:\n"),
        ("        return answering and silent", "        return silent"),
        ("        if not stands:\n", "        if stands is None:\n"),
    ),
    *_of(
        "roq/log/segments.py",
        DISK,
        ("            files.sync(name)\n", "            pass\n"),
        ("        if group.head is not None:\n            files.sync_folder()\n", ""),
        ("synced=self.synced, end=self.end)", "synced=self.committed, end=self.end)"),
        ("        if self._under_way is not None:\n            return None\n", ""),
        ("        self.sync_wanted = (full or far) and", "        self.sync_wanted = far and"),
        ("        whole = group.head is None and group.snapshot is None and not group.removed\n",
         "        whole = group.head is None\n"),
        ("Group(end=self.committed, sync=not self._ahead)", "Group(end=self.committed)"),
        ("alone = self._snapshot_due and bool(self._removed)\n", "alone = False\n"),
    ),
    *_of(
        "roq/log/hot_tail.py",
        DISK,
        ("held = self.committed_to - self.floor\n", "held = self.end - self.floor\n"),
    ),
    *_of(
        "roq/log/segment_reader.py",
        DISK,
        ("            or found.offset != offset\n", ""),
        ("while segments and segments[-1].base >= file.base:\n", "while False:\n"),
    ),
    *_of(
        "roq/log/records.py",
        DISK,
        (
            "    return xxh3_64_intdigest(cast(\"bytes\", body), seed=xxh3_64_intdigest(prefix))\n",
            "    return xxh3_64_intdigest(cast(\"bytes\", body))\n",
        ),
    ),
    *_of(
        "roq/log/recovery.py",
        DISK,
        ("if found.offset >= claim]\n", "if False]\n"),
        ("LEAP: Final = 2 * UNSYNCED_ENTRIES_MAX\n", "LEAP: Final = 0\n"),
        ("            self._go_over(file, tail[0].follows if tail else None)\n",
         "            self._go_over(file, tail[0].base if tail else None)\n"),
        ("if following >= claim:\n", "if following < claim:\n"),
        ("        self._files.sync(name + NEW_SUFFIX)\n", ""),
        ("            if _begins_here(file):\n", "            if file.found:\n"),
        ("        if snapshot is not None:\n            records.insert(",
         "        if snapshot is not None and again:\n            records.insert("),
        ("topics = {} if snapshot is None else dict(snapshot.topics)\n", "topics = {}\n"),
    ),
    *_of(
        "roq/log/groups.py",
        GROUPS,
        ("        self._settle(lease, bits, done=False)\n        divided", "        divided"),
        ("            del self._members[member.id]\n", ""),
        ("        if exclusive and leases:\n", "        if False:\n"),
        ("        open_bits = bits_at(0, count) & ~done\n",
         "        open_bits = bits_at(0, count)\n"),
        ("min(max(0.0, now - self._ticked_at), STEP_SECONDS_MAX)",
         "max(0.0, now - self._ticked_at)"),
    ),
    *_of(
        "roq/log/group_journal.py",
        GROUPS,
        ("            self._known.clear()\n            self._tried.clear()\n", ""),
    ),
    *_of(
        "roq/log/key_groups.py",
        GROUPS,
        ("return not self._out[lane] or self._holder[lane] == member", "return True"),
        ("            if before is None or ranks[lane] > self._ranks[before][lane]:\n",
         "            if True:\n"),
        ("        if moved:\n            self._tables.clear()\n", ""),
        ("            if not self._out[lane] and self._wanted[lane] != member:\n",
         "            if False:\n"),
    ),
    *_of(
        "roq/log/keyed_messages.py",
        GROUPS,
        ("        if self.groups.over(lease.lanes):\n", "        if False:\n"),
        ("            while passed < len(holds) and holds[passed][0] < offset:\n",
         "            while False:\n"),
        ("                mine &= ~behind\n", "                pass\n"),
        ("            if fresh is not None and piece.offset >= fresh.offset:\n",
         "            if fresh is not None:\n"),
        ("if self._places[lane][nth] == (offset, index):", "if True:"),
        ("| bits\n        self._go_back(offset)\n", "| bits\n"),
    ),
    *_of(
        "roq/log/ranked_messages.py",
        GROUPS,
        ("sorted(self._levels, reverse=True)", "sorted(self._levels)"),
        ("            if self._owed >= HIGHER_OF_LOWER * oldest.amount:\n",
         "            if False:\n"),
        ("return int(not self.level(piece))", "return 0"),
        ("oldest = min(ready[1:])", "oldest = ready[1]"),
    ),
    *_of(
        "roq/client/consume/ordering.py",
        GROUPS,
        ("or (state == GIVEN and holding.unconfirmed > 0)", ""),
        ("for index in range(holding.begun, len(states)):", "for index in range(len(states)):"),
        ("and (holding.offset, holding.first + index) > place", ""),
    ),
    *_of(
        "roq/client/consume/shell.py",
        GROUPS,
        ("                back = [(holding, index) for index in self._ordering.arrived(holding)]\n",
         "                back: list[tuple[Holding, int]] = []\n"),
    ),
    *_of(
        "roq/log/open_batches.py",
        GROUPS,
        ("while base < self.next and base not in self.bits:", "while base < self.next:"),
        (" - sum(to - start for start, to in self._leaps)", ""),
    ),
    *_of(
        "roq/exchange/consumers.py",
        GROUPS,
        ("        self._writing.add(self._due)\n", "        self._confirm(self._due)\n"),
        ("            return b\"\"  # so nothing is waited for\n", "            pass\n"),
        ("if before is not None and before.attempt > join.attempt:", "if False:"),
        ("held = join.held if join.generation == self._log.generation else []",
         "held = join.held"),
        ("self._numbers = NumberedLeases(epoch)", "self._numbers = NumberedLeases()"),
        ("            self._blocked.recall(peer)\n", ""),
    ),
    *_of(
        "roq/client/consume/machine.py",
        GROUPS,
        ("        seat.told_at = now\n        seat.request", "        seat.request"),
        ("        if self._lapsed(seat, now):\n            return self._join(log, seat, now)\n",
         ""),
        ("if not holding.untold and not holding.unconfirmed:", "if not holding.untold:"),
        ("            holding.untell()\n", ""),
        ("            seat.returning += given\n", ""),
        ("        seat.returning = 0\n", ""),
        ("                holding.number = segment.lease\n", "                pass\n"),
    ),
    *_of(
        "roq/client/publish/bound.py",
        ("tests/unit/client/publish/test_bound.py",),
        ("        if logs:\n", "        if True:\n"),
        (" or log.number in numbers", ""),
        ("        self._named |= serving\n", "        self._named = serving | {*self._gone}\n"),
        ("        self._give_up(link)\n        if len(link.window):\n",
         "        if len(link.window):\n"),
        ("FOR_A_WHILE - self.topics", "FOR_A_WHILE"),
    ),
    *_of(
        "roq/log/service_group.py",
        REQUESTS,
        ("            still ^= 1 << at\n", ""),
        ("            if at < 0 or not still >> at & 1:\n", "            if at < 0:\n"),
        ("        message = None if named != position else delayed_message(named)\n",
         "        message = None\n"),
        ("            position, publisher = delayed\n", "            position, _ = delayed\n"),
    ),
    *_of(
        "roq/log/choice.py",
        ("tests/unit/log/test_choice.py",),
        ("        return other if ahead else one\n", "        return one if ahead else other\n"),
        (" + (second >= first)", ""),
        ("        return willing[0] if willing else None\n", "        return pair[0]\n"),
        (" * max(1, of_other.threads)", ""),
    ),
    *_of(
        "roq/log/delayed_requests.py",
        ("tests/unit/log/test_delayed_requests.py",),
        ("        if any(memoryview(data)[_LINK_NUMBER]):", "        if False:\n"),
        ("            del self._where[found[0]]\n", "            pass\n"),
        ("        if named is not None and named not in self._where:\n",
         "        if named is not None:\n"),
    ),
    *_of(
        "roq/client/request/handling.py",
        REQUESTS,
        ("            self._workers.put([registered])  # another thread may begin with the rest\n",
         "            pass\n"),
        ("    return min((each.context for", "    return max((each.context for"),
        ("    if len(answers) != count:\n", "    if len(answers) < count:\n"),
    ),
    *_of(
        "roq/client/request/workers.py",
        REQUESTS,
        ("            if due:\n                self._wake()\n", ""),
        ("                gate.acquire()\n                self._waking = False\n",
         "                gate.acquire()\n"),
    ),
    *_of(
        "roq/client/request/many.py",
        REQUESTS,
        ("        if self.ends[member] is not None:\n            return False\n", ""),
        ("for part in reversed(self.parts) if number", "for part in self.parts if number"),
    ),
    *_of(
        "roq/client/request/shell.py",
        REQUESTS,
        ("        if not part.many.held:\n", "        if True:\n"),
        ("        if not part.left:\n            self._not_due(part)\n", ""),
        ("            positions = part.open()\n", ""),
    ),
    *_of(
        "roq/jobs/timetable.py",
        SCHEDULES,
        ("        if time > after:\n", "        if time:\n"),
        ("    if now < due:\n", "    if now < 0:\n"),
        ("        if len(tried) > enough:\n", "        if len(tried) < enough:\n"),
        ("if now - time <= LATE]", "if now - time < LATE]"),
        ("next(_cron_times(plan, _LATELY), None) is None", "False"),
    ),
    *_of(
        "roq/jobs/schedules.py",
        SCHEDULES,
        (" WHERE s.enabled = 1 AND t.enabled = 1 AND", " WHERE s.enabled = 1 AND"),
        ("next_time(each.plan, now) if again else row.next", "next_time(each.plan, now)"),
        ("            if room[name] > 0:\n", "            if room:\n"),
        ("                if each.outcome == \"new\"\n", ""),
        ("self._new(connection, sorted(times))", "sorted(times)"),
        ("break  # the rest next time", "pass  # the rest next time"),
        (" AND NOT EXISTS (SELECT 1 FROM job\"\n            f\" WHERE job.id = f.job AND {_OPEN})",
         ""),
        ("unique=mark if plan.overlap is Overlap.SKIP else None", "unique=None"),
    ),
)  # fmt: skip
