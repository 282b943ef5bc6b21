"""Whatever a provider does, each call is answered once, and the loop goes on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest
from providers import FailingProvider, HangingProvider, LyingProvider, PaperProvider

from roq.gcm.events import CreateHost, GivenUp, ListHosts, ProviderAction, RemoveHost
from roq.gcm.provision import calls as provider_calls
from roq.gcm.provision.calls import THREADS_MAX, ProviderCalls
from roq.provider.port import HostRequest, ProvidedHost
from roq.runtime.reactor import Reactor

CREATE = CreateHost("e1-1", "orders")
GOOD = ProvidedHost(name="e1-1", host="127.0.7.9", handle="h")


class Calls:
    """The calls of one provider, and a loop that runs until they are answered."""

    def __init__(self, provider: PaperProvider, seconds: float = 10.0) -> None:
        self.reactor = Reactor()
        self.calls = ProviderCalls(
            self.reactor, provider, cluster=lambda: "c1", make_request=self._request,
            seconds=seconds,
        )  # fmt: skip

    def ask(self, *actions: ProviderAction) -> list[object]:
        answers: list[object] = []

        def answered(answer: object) -> None:
            answers.append(answer)
            if len(answers) == len(actions):
                self.reactor.stop()

        for action in actions:
            self.calls.call(action, answered)
        self.reactor.run()
        self.reactor._stopping = False
        return answers

    def _request(self, action: CreateHost) -> HostRequest:
        return HostRequest(
            cluster="c1", name=action.name, managers=["h:5000"], zookeeper="z:2181",
            taken=["127.0.0.1"],
        )  # fmt: skip


@pytest.fixture
def asked() -> Iterator[Callable[..., object]]:
    made: list[Calls] = []

    def ask(provider: PaperProvider, action: ProviderAction, seconds: float = 10.0) -> object:
        calls = Calls(provider, seconds)
        made.append(calls)
        [answer] = calls.ask(action)
        return answer

    yield ask
    for calls in made:
        calls.calls.close()
        calls.reactor.close()


class Gives(PaperProvider):
    """Gives the same to whoever asks."""

    def __init__(self, given: object) -> None:
        super().__init__()
        self.given = given

    def create(self, request):  # type: ignore[no-untyped-def]
        return self.given

    def list(self, cluster):  # type: ignore[no-untyped-def]
        return self.given

    def remove(self, handle):  # type: ignore[no-untyped-def]
        return self.given


class Wordless(Exception):
    """Even what it says raises."""

    def __str__(self) -> str:
        raise ValueError


def changed(**fields: object) -> ProvidedHost:
    return msgspec.structs.replace(GOOD, **fields)


def test_a_good_provider_makes_lists_and_removes(asked) -> None:
    provider = PaperProvider()
    made = asked(provider, CREATE)
    assert isinstance(made, ProvidedHost)
    assert asked(provider, ListHosts()) == (made,)
    assert asked(provider, RemoveHost("e1-1", made.handle)) is None
    assert asked(provider, ListHosts()) == ()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("no disk"), "no disk"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (SystemExit("enough"), "enough"),
        (Wordless(), "Wordless"),
        (ValueError("x" * 10_000), "x" * 100),
    ],
)
@pytest.mark.parametrize("action", [CREATE, ListHosts(), RemoveHost("e1-1", "h")])
def test_whatever_it_raises_is_told_in_words(asked, error, words: str, action) -> None:
    answer = asked(FailingProvider(error=error), action)
    assert isinstance(answer, str)
    assert words in answer
    assert len(answer) <= provider_calls.ERROR_MAX


@pytest.mark.parametrize(
    "given",
    [
        *(None, "e1-1", 7, {"name": "e1-1"}, changed(name=""), changed(name=7)),
        *(changed(host=""), changed(host="a b"), changed(host=["x"]), changed(host="127.0.0.1")),
        *(changed(handle=[]), changed(handle="x" * 513), changed(name="e9-9")),
        *(changed(state="asleep"), changed(created="yesterday"), changed(note=b"?")),
    ],
)
def test_a_host_that_makes_no_sense_is_none(asked, given: object) -> None:
    answer = asked(Gives(given), CREATE)
    assert isinstance(answer, str)
    assert "it gave" in answer


def test_a_provider_that_lies_about_a_host_is_not_believed(asked) -> None:
    assert isinstance(asked(LyingProvider(), CREATE), str)


@pytest.mark.parametrize("given", [None, 7, [None], [GOOD, "x"], [changed(host={})]])
def test_a_list_that_makes_no_sense_is_none(asked, given: object) -> None:
    answer = asked(Gives(given), ListHosts())
    assert isinstance(answer, str)
    assert "its hosts" in answer


def test_a_list_without_end_is_cut(asked) -> None:
    answer = asked(Gives(itertools.repeat(GOOD)), ListHosts())
    assert isinstance(answer, tuple)
    assert len(answer) == 1_000


def test_what_a_removal_gives_does_not_matter(asked) -> None:
    assert asked(Gives("removed!"), RemoveHost("e1-1", "h")) is None


def test_a_call_that_hangs_is_given_up_and_its_answer_comes_too_late(asked) -> None:
    provider = HangingProvider("create", "remove")
    assert asked(provider, CREATE, 0.05) == GivenUp(0.05)
    assert asked(provider, RemoveHost("e1-1", "h"), 0.05) == GivenUp(0.05)
    assert asked(provider, ListHosts()) == ()
    provider.release()


def test_when_too_many_calls_hang_further_ones_are_refused_and_later_ones_are_not() -> None:
    provider = HangingProvider("list")
    calls = Calls(provider, seconds=0.1)
    answers = calls.ask(*[ListHosts()] * (THREADS_MAX + 2))
    assert answers.count(GivenUp(0.1)) == THREADS_MAX
    assert [each for each in answers if isinstance(each, str)] == ["16 earlier calls hang"] * 2
    provider.release()
    for thread in threading.enumerate():
        if thread.name == "provider":
            thread.join()
    calls.reactor.call_soon(calls.reactor.stop)
    calls.reactor.run()
    calls.reactor._stopping = False
    assert calls.ask(ListHosts()) == [()]
    calls.calls.close()
    calls.reactor.close()


def test_a_provider_that_does_not_close_holds_nothing_up(monkeypatch) -> None:
    monkeypatch.setattr(provider_calls, "CLOSE_SECONDS", 0.05)
    released = threading.Event()
    for close in (FailingProvider("close").remove, released.wait):
        provider = PaperProvider()
        monkeypatch.setattr(provider, "close", close)  # the first one raises: it wants a handle
        calls = Calls(provider)
        calls.calls.close()
        calls.reactor.close()
    released.set()
