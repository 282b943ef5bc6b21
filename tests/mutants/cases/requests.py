"""Mistakes of requesters and instances (`roq/client/request`)."""

from __future__ import annotations

from typing import Final

from tests.mutants.cases.mutant import REQUESTS, Mutant, mutants

MUTANTS: Final[tuple[Mutant, ...]] = (
    *mutants(
        "roq/client/request/machine.py",
        ("tests/unit/client/request/test_machine.py",),
        ("        words.unwanted.update(unwanted)\n", ""),
        (" if at <= soon or each in unwanted]", " if at <= soon]"),
        ("in (known, unwanted) if unwanted else (known,):", "in (known,):"),
    ),
    *mutants(
        "roq/client/request/handling.py",
        REQUESTS,
        ("            self._workers.put([registered])  # another thread may begin with the rest\n",
         "            pass\n"),
        ("        if holding.stages[at] != WAITING:\n", "        if False:\n"),
        (" if ended >= since]", "]"),
        ("context.attempt - work.holding.losses", "context.attempt"),
    ),
    *mutants(
        "roq/client/request/instance.py",
        REQUESTS,
        ("        if rests == self._moves():\n", "        if False:\n"),
        ("max(0, self._used() - held)", "0"),
        ("            holding.begun = holding.started\n", "            pass\n"),
    ),
    *mutants(
        "roq/client/request/instance_shell.py",
        REQUESTS,
        ("if each.waited and each.open_at(WAITING)]", "if each.open_at(WAITING)]"),
        ("        self._give_up()\n        super().close()\n", "        super().close()\n"),
        ("if each.waited and self._is_certain(each)]", "if each.waited]"),
        ("        if verdict.counted:\n", "        if False:\n"),
    ),
    *mutants(
        "roq/client/request/calls.py",
        REQUESTS,
        ("    first = min((each.contexts[0] for", "    first = max((each.contexts[0] for"),
        ("together(first, [each.contexts for each in batch])", "first"),
        ("    if len(answers) != count:\n", "    if len(answers) < count:\n"),
        ("at + room, count - room", "at, count - room"),
    ),
    *mutants(
        "roq/client/request/workers.py",
        REQUESTS,
        ("            if due:\n                self._wake()\n", ""),
        ("                gate.acquire()\n                self._waking = False\n",
         "                gate.acquire()\n"),
    ),
    *mutants(
        "roq/client/request/many.py",
        REQUESTS,
        ("        if self.ends[member] is not None:\n            return False\n", ""),
        ("for part in reversed(self.parts) if number", "for part in self.parts if number"),
    ),
    *mutants(
        "roq/client/request/shell.py",
        REQUESTS,
        ("            if not (positions := part.open()):\n", "            if False:\n"),
        ("        self._cancelled.extend(self.inner.unwanted())\n", ""),
    ),
    *mutants(
        "roq/client/request/requester.py",
        ("tests/unit/client/request/test_requester.py",),
        ("        if within is not None or context is not None:\n",
         "        if within is not None:\n"),
        ("                seconds = min(seconds, max(0.001, context.remaining))\n",
         "                pass\n"),
        ("if inherit else None\n        data = self._head(endpoint, within, 0,",
         "\n        data = self._head(endpoint, within, 0,"),
        ("CURRENT.get() if inherit else None\n        data = self._head(endpoint, within, 0,",
         "None\n        data = self._head(endpoint, within, 0,"),
        ("if inherit else None\n        data = self._head(endpoint, within, SILENT,",
         "\n        data = self._head(endpoint, within, SILENT,"),
        ("CURRENT.get() if inherit else None\n        head =", "None\n        head ="),
        ("            collector.inner.add(context, pending)\n", "            pass\n"),
        ("            self._collector.inner.add(context, many)\n", "            pass\n"),
    ),
    *mutants(
        "roq/client/request/waiting_requests.py",
        ("tests/unit/client/request/test_waiting_requests.py",),
        ("(each, not context.remaining)", "(each, False)"),
        ("                self._let_go_ended()\n", "                pass\n"),
        ("for each in self._made.pop(context)", "for each in self._made[context]"),
    ),
    *mutants(
        "roq/client/request/views.py",
        ("tests/unit/client/request/test_views.py",),
        (" if each.generation == generation ", " "),
        ("asked = msgspec.structs.replace(queue, exchanges=there)", "asked = queue"),
        ("if views[0].state in _GONE else ended", "if False else ended"),
    ),
    *mutants(
        "roq/client/request/ends.py",
        REQUESTS,
        ("        if not part.many.held:\n", "        if True:\n"),
        ("        if not part.left:\n            self._requests.not_due(part)\n", ""),
        ("        if not run.left:\n            self._requests.not_due(run)\n", ""),
        ("        self._kept.let_go(*told)\n", ""),
        ("        run.drop(end)\n", ""),
        ("        if len(free) == end.count:\n", "        if True:\n"),
    ),
    *mutants(
        "roq/client/request/requester.py",
        ("tests/unit/testing/test_virtual_requests.py",),
        ("        now = self._collector.wall_clock()\n",
         "        now = __import__(\"time\").time()\n"),
    ),
    *mutants(
        "roq/client/request/shell.py",
        ("tests/unit/testing/test_virtual_requests.py",),
        ("        self.wall_clock = engine.wall_clock\n",
         "        self.wall_clock = __import__(\"time\").time\n"),
    ),
)  # fmt: skip
