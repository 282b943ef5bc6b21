"""Policies of others, ended when they take too long.

    policy_named = Guard(reactor.now).policy_named

A monitor has one thread, and a policy that never comes back would take it for good: publishers and
subscribers that look for the queue would find nobody. An alarm interrupts Python code wherever it
is; a loop inside of an extension module is out of its reach.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

from roq.errors import ConfigError, Unavailable
from roq.policy.catalogue import POLICIES
from roq.policy.snapshot import Decision, Memory, Policy, QueueView
from roq.runtime import plugins

DECIDE_SECONDS: Final = 0.5
LOAD_SECONDS: Final = 5.0
REST_SECONDS: Final = 30.0
"""A policy that took too long is not asked again for this long, so it costs little altogether."""
AGAIN_SECONDS: Final = 0.25
"""Code that shrugs an interruption off is interrupted again."""

T = TypeVar("T")


class _TimeUp(BaseException):
    """Not an `Exception`, for a policy may catch these."""


class Alarm:
    """Interrupts what takes too long. Of the main thread; in another one it never rings."""

    def __init__(self) -> None:
        self._armed = False
        self._usable = threading.current_thread() is threading.main_thread()
        if self._usable:
            signal.signal(signal.SIGALRM, self._rings)

    def limit(self, seconds: float, work: Callable[[], T]) -> T:
        """Do the work within so many seconds.

        Raises:
            Unavailable: it took longer and was interrupted.
        """
        if not self._usable:
            return work()
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
            try:
                return work()
            finally:
                self._disarm()
        except _TimeUp:
            self._disarm()
            raise Unavailable(f"it took more than {seconds:g} s and was interrupted") from None

    def _disarm(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _rings(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed:
            raise _TimeUp


class PolicyTimeout:
    """Finds policies; those that are not RoQ's own are watched.

    Args:
        now: gives the present time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._alarm = Alarm()

    def policy_named(self, name: str) -> Policy:
        """The policy of this name.

        Raises:
            ConfigError: there is none, or it cannot be used; the text says why.
        """
        if name in POLICIES:
            return POLICIES[name]
        try:
            policy = self._alarm.limit(LOAD_SECONDS, lambda: plugins.policy(name))
        except Unavailable as error:
            raise ConfigError(f"policy {name!r} cannot be loaded: {error}") from None
        return _Watched(policy, self._alarm, self._now)


class _Watched:
    """A policy that may take `DECIDE_SECONDS` each time."""

    def __init__(self, policy: Policy, alarm: Alarm, now: Callable[[], float]) -> None:
        self._policy = policy
        self._alarm = alarm
        self._now = now
        self._rests_until = float("-inf")

    def decide(self, view: QueueView, memory: Memory) -> tuple[list[Decision], Memory]:
        """As the policy decides.

        Raises:
            Unavailable: it takes too long, or did so a short while ago.
        """
        if self._now() < self._rests_until:
            raise Unavailable(f"it took too long and is not asked for {REST_SECONDS:g} s")
        try:
            return self._alarm.limit(DECIDE_SECONDS, lambda: self._policy.decide(view, memory))
        except Unavailable:
            self._rests_until = self._now() + REST_SECONDS
            raise
