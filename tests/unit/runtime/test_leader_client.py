"""Questions to the leader, with real sockets on a real reactor."""

import socket
from collections.abc import Callable, Iterator

import pytest

from roq.errors import Unavailable
from roq.protocol import documents
from roq.protocol.control import (
    NOT_LEADER,
    Answer,
    Control,
    Done,
    ElasticityRequest,
    Failure,
    GcmRequest,
)
from roq.runtime import leader_finder, sockets
from roq.runtime.leader_client import LeaderClient
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import Peer, RpcServer, read_request

QUESTION = ElasticityRequest(queue="orders", queue_id=b"q" * 16)


class World:
    """A reactor with configuration managers that answer as they are told."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.context = sockets.new_context()
        self.client = LeaderClient(self.reactor, self.context)
        self.servers: list[RpcServer] = []
        self.asked: list[str] = []
        self.answers: list[Answer | Unavailable] = []

    def manager(self, answer: Callable[[], Control | None]) -> str:
        """Start one; gives its address."""
        socket = sockets.router(self.context)
        endpoint = f"tcp://127.0.0.1:{sockets.bind(socket, '127.0.0.1')}"

        def received(peer: Peer, data: bytes) -> None:
            request = read_request(data, GcmRequest)  # type: ignore[arg-type]
            self.asked.append(endpoint)
            answered = answer()
            if answered is not None:
                reply = documents.encode(type(answered)(**{**fields(answered), "id": request.id}))
                server.send(peer, reply)

        server = RpcServer(self.reactor, socket, received)
        self.servers.append(server)
        return endpoint

    def managed(self, *managers: str) -> None:
        """These are known from the beginning."""
        self.client.close()
        self.client = LeaderClient(self.reactor, self.context, managers)

    def ask(self, seconds: float = 5.0) -> None:
        self.client.ask(QUESTION, seconds, self._answered)

    def run(self) -> None:
        """Until all questions are answered."""
        timer = self.reactor.call_later(10.0, self.reactor.stop)
        self.reactor._stopping = False
        self.reactor.run()
        timer.cancel()

    def close(self) -> None:
        self.client.close()
        for server in self.servers:
            server.close()
        self.context.term()
        self.reactor.close()

    def _answered(self, answer: Answer | Unavailable) -> None:
        self.answers.append(answer)
        self.reactor.stop()


def fields(message: Control) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


def redirects_to(endpoint: str) -> Failure:
    return Failure(RESULT=NOT_LEADER, COMMENT="no", CODE="not_leader", ENDPOINT=endpoint)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_the_leader_answers(world: World) -> None:
    world.client.move(world.manager(Done))
    world.ask()
    world.run()
    assert isinstance(world.answers[0], Done)


def test_a_manager_that_does_not_lead_names_the_one_that_does(world: World) -> None:
    leader = world.manager(Done)
    follower = world.manager(lambda: redirects_to(leader))
    world.client.move(follower)
    world.ask()
    world.run()
    assert isinstance(world.answers[0], Done)
    assert world.asked == [follower, leader]


def test_the_old_word_of_the_host_manager_does_not_lead_back(world: World) -> None:
    leader = world.manager(Done)
    follower = world.manager(lambda: redirects_to(leader))
    for _ in range(2):
        world.client.move(follower)
        world.ask()
        world.run()
    assert world.asked == [follower, leader, leader]


def test_two_managers_that_name_each_other_are_not_asked_for_ever(world: World) -> None:
    addresses: list[str] = []
    addresses.append(world.manager(lambda: redirects_to(addresses[1])))
    addresses.append(world.manager(lambda: redirects_to(addresses[0])))
    world.client.move(addresses[0])
    world.ask()
    world.run()
    [answer] = world.answers
    assert isinstance(answer, Failure)
    assert answer.RESULT == NOT_LEADER
    assert world.asked == addresses


@pytest.mark.parametrize("endpoint", ["", "file:///etc/passwd", "tcp://" + "x" * 400])
def test_a_redirection_to_nowhere_is_an_answer(world: World, endpoint: str) -> None:
    world.client.move(world.manager(lambda: redirects_to(endpoint)))
    world.ask()
    world.run()
    assert isinstance(world.answers[0], Failure)


def test_without_an_answer_the_question_ends_in_time(world: World) -> None:
    world.client.move(world.manager(lambda: None))
    world.ask(0.1)
    world.run()
    assert isinstance(world.answers[0], Unavailable)


def test_what_is_open_when_the_leader_changes_is_asked_again_there(world: World) -> None:
    world.client.move(world.manager(lambda: None))
    world.ask()
    leader = world.manager(Done)
    world.reactor.call_later(0.1, lambda: world.client.move(leader))
    world.run()
    assert isinstance(world.answers[0], Done)


def test_a_silent_leader_may_be_named_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_finder, "SHUNNED_SECONDS", 0.0)
    answers: list[Control | None] = [None, Done()]
    leader = world.manager(lambda: answers.pop(0))
    follower = world.manager(lambda: redirects_to(leader))
    world.client.move(follower)
    world.ask(0.2)
    world.run()
    world.client.move(follower)
    world.ask()
    world.run()
    assert isinstance(world.answers[-1], Done)
    assert world.asked == [follower, leader, follower, leader]


def test_as_long_as_nobody_is_known_to_lead_a_question_waits_for_it(world: World) -> None:
    world.client.move("")
    world.ask()
    leader = world.manager(Done)
    world.reactor.call_later(0.1, lambda: world.client.move(leader))
    world.run()
    assert isinstance(world.answers[0], Done)


def test_and_ends_in_time(world: World) -> None:
    world.ask(0.1)
    world.run()
    [answer] = world.answers
    assert isinstance(answer, Unavailable)
    assert "no configuration manager is known to lead" in str(answer)


# --- without a word of the host manager -----------------------------------------------------------


def test_configured_managers_are_asked_when_the_host_manager_names_none(world: World) -> None:
    leader = world.manager(Done)
    world.managed(world.manager(lambda: redirects_to(leader)))
    world.ask()
    world.run()
    assert isinstance(world.answers[0], Done)


def test_the_next_manager_is_asked_when_one_is_silent(world: World) -> None:
    silent, leader = world.manager(lambda: None), world.manager(Done)
    world.managed(silent, leader)
    world.ask(0.1)
    world.run()
    world.ask()
    world.run()
    assert isinstance(world.answers[-1], Done)
    assert world.asked == [silent, leader]


def test_a_manager_that_knows_nobody_who_leads_is_left(world: World) -> None:
    waiting, leader = world.manager(lambda: redirects_to("")), world.manager(Done)
    world.managed(waiting, leader)
    world.ask()
    world.run()
    assert isinstance(world.answers[0], Done)
    assert world.asked == [waiting, leader]


def test_the_stale_word_of_a_host_manager_does_not_lead_back_to_who_is_silent(
    world: World,
) -> None:
    silent, leader = world.manager(lambda: None), world.manager(Done)
    world.managed(leader)
    for seconds in (0.1, 5.0):
        world.client.move(silent)
        world.ask(seconds)
        world.run()
    world.client.move(silent)
    world.ask()
    world.run()
    assert world.asked == [silent, leader, leader]


def test_what_goes_to_a_manager_that_ends_is_asked_at_the_next_one_at_once(world: World) -> None:
    ended, leader = world.manager(lambda: world.reactor.call_soon(end)), world.manager(Done)
    end = world.servers[0].close
    world.managed(ended, leader)
    world.ask()
    world.run()
    assert isinstance(world.answers[0], Done)


def test_a_manager_that_cannot_be_reached_is_tried_until_the_time_is_over(world: World) -> None:
    with socket.socket() as nobody:  # has a port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        world.managed(f"tcp://127.0.0.1:{nobody.getsockname()[1]}")
        began = world.reactor.now()
        world.ask(0.4)
        world.run()
    assert isinstance(world.answers[0], Unavailable)
    assert world.reactor.now() - began >= 0.4


def test_what_is_open_is_asked_again_at_the_next_manager(world: World) -> None:
    silent, leader = world.manager(lambda: None), world.manager(Done)
    world.managed(silent, leader)
    world.ask(5.0)
    world.client.ask(QUESTION, 0.1, lambda _: None)
    world.run()
    assert isinstance(world.answers[0], Done)
