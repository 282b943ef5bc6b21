"""What a Docker Engine is asked for, and what is made of its answers; the engine is of paper."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from roq.errors import ProviderFailed
from roq.provider.engine import LOG_CHARACTERS_MAX, LOG_LINES, Container, ContainerSpec, Engine

SEEN: dict[str, Any] = {
    "Id": "abc", "Name": "/roq-c-n", "Created": "2026-01-01T00:00:00Z",
    "State": {"Status": "running", "ExitCode": 0, "Error": "", "More": 1},
    "Config": {"Labels": {"roq": "1"}, "Tty": False},
    "NetworkSettings": {"Networks": {"n": {"IPAddress": "172.1.0.2"}, "m": {"IPAddress": ""}}},
}  # fmt: skip
DESCRIBED = Container(
    id="abc", name="roq-c-n", labels={"roq": "1"}, status="running",
    created="2026-01-01T00:00:00Z", addresses={"n": "172.1.0.2"}, exit_code=0, error="",
)  # fmt: skip
SPEC = ContainerSpec(name="roq-c-n", image="i:1", command=["a"], labels={"roq": "1"}, network="n")


class PaperEngine:
    """Answers as it is told to, and remembers what it is asked.

    Attributes:
        answers: beginning of a request, as `POST /containers/create` → status and document.
        asked: method and path of all requests, the version left out, but for that question.
        bodies: what came with them.
    """

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, object]] = {}
        self.asked: list[str] = []
        self.queries: list[dict[str, list[str]]] = []
        self.bodies: list[bytes] = []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                status, document = engine.take(self.command, self.path, self.rfile.read(size))
                data = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        for method in ("GET", "POST", "PUT", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.answer)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def take(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        split = urlsplit(path)
        place = split.path.partition("/v1.45")[2] or split.path
        if place == "/version":
            return 200, {"ApiVersion": "1.45"}
        self.asked.append(f"{method} {place}")
        self.queries.append(parse_qs(split.query))
        self.bodies.append(body)
        for begin, answer in self.answers.items():
            if f"{method} {place}".startswith(begin):
                return answer
        return (204, b"") if method in {"POST", "DELETE"} else (200, SEEN)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def paper() -> Iterator[PaperEngine]:
    made = PaperEngine()
    yield made
    made.close()


@pytest.fixture
def engine(paper: PaperEngine) -> Engine:
    return Engine(f"tcp://127.0.0.1:{paper.server.server_port}", timeout_seconds=20.0)


MISSING = (404, {"message": "no such thing"})
BUSY = (409, {"message": "removal is already in progress"})


def test_a_container_is_described_by_what_the_engine_says_of_it(
    engine: Engine, paper: PaperEngine
) -> None:
    assert engine.find("roq-c-n") == DESCRIBED
    assert paper.asked == ["GET /containers/roq-c-n/json"]
    paper.answers["GET /containers/roq"] = (200, {**SEEN, "Config": {"Labels": None}})
    assert engine.find("roq-c-n").labels == {}
    paper.answers["GET /containers/roq"] = MISSING
    assert engine.find("roq-c-n") is None


def test_a_description_that_is_none_is_a_failure_and_no_surprise(
    engine: Engine, paper: PaperEngine
) -> None:
    paper.answers["GET /containers/roq"] = (200, {**SEEN, "State": {"Status": 5}})
    with pytest.raises(ProviderFailed, match="cannot look at the container roq-c-n"):
        engine.find("roq-c-n")


def test_a_container_is_made_with_no_more_rights_and_room_than_it_needs(
    engine: Engine, paper: PaperEngine
) -> None:
    paper.answers["POST /containers/create"] = (201, {"Id": "abc"})
    limited = ContainerSpec(
        name="roq-c-n", image="i:1", command=["a"], labels={"roq": "1"}, network="n",
        memory_bytes=1 << 30, cpus=1.5, pids_max=300,
    )  # fmt: skip
    assert engine.make(limited) == DESCRIBED
    assert paper.queries[0] == {"name": ["roq-c-n"]}
    told = json.loads(paper.bodies[0])
    assert (told["Image"], told["Cmd"], told["Labels"]) == ("i:1", ["a"], {"roq": "1"})
    host = told["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (1 << 30, 1 << 30)
    assert (host["NanoCpus"], host["PidsLimit"]) == (1_500_000_000, 300)
    assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
    assert (host["Init"], host["RestartPolicy"]) == (True, {"Name": "no"})
    assert host["NetworkMode"] == "n"
    assert host["LogConfig"]["Config"] == {"max-size": "4m", "max-file": "2"}


def test_what_is_not_limited_has_no_limit(engine: Engine, paper: PaperEngine) -> None:
    paper.answers["POST /containers/create"] = (201, {"Id": "abc"})
    engine.make(SPEC)
    host = json.loads(paper.bodies[0])["HostConfig"]
    assert not {"Memory", "NanoCpus", "PidsLimit"} & {name for name, each in host.items() if each}


def test_a_name_that_is_taken_makes_no_container_and_anything_else_is_a_failure(
    engine: Engine, paper: PaperEngine
) -> None:
    paper.answers["POST /containers/create"] = (409, {"message": "the name is in use"})
    assert engine.make(SPEC) is None
    paper.answers["POST /containers/create"] = (500, {"message": "no space left"})
    with pytest.raises(
        ProviderFailed, match="Docker refuses to make the container roq-c-n: no space left"
    ):
        engine.make(SPEC)


def test_files_are_written_into_a_container_for_it_alone_to_change(
    engine: Engine, paper: PaperEngine
) -> None:
    engine.put("abc", "/etc/roq", {"hcm.toml": "x = 'ü'\n", "more": ""})
    assert paper.asked[-1].startswith("PUT /containers/abc/archive")
    assert paper.queries[-1] == {"path": ["/etc/roq"]}
    with tarfile.open(fileobj=io.BytesIO(paper.bodies[-1])) as archive:
        found = {each.name: (each.mode, archive.extractfile(each).read()) for each in archive}
    assert found == {"hcm.toml": (0o644, "x = 'ü'\n".encode()), "more": (0o644, b"")}


def test_containers_are_found_by_their_labels_also_those_that_do_not_run(
    engine: Engine, paper: PaperEngine
) -> None:
    paper.answers["GET /containers/json"] = (200, [{"Id": "abc"}])
    assert engine.labelled({"roq.cluster": "c", "roq.host": ""}) == [DESCRIBED]
    assert paper.queries[0]["all"] == ["1"]
    filters = json.loads(paper.queries[0]["filters"][0])
    assert filters == {"label": ["roq.cluster=c", "roq.host"]}


def test_a_container_is_stopped_with_a_grace_and_goes_with_what_it_wrote(
    engine: Engine, paper: PaperEngine
) -> None:
    engine.start("abc")
    engine.remove("abc", 2.6)
    assert [each for each in paper.asked if not each.startswith("GET")] == [
        "POST /containers/abc/start", "POST /containers/abc/stop", "DELETE /containers/abc",
    ]  # fmt: skip
    stop, delete = paper.queries[-2:]
    assert stop == {"t": ["3"]}
    assert (delete["v"], delete["force"]) == (["True"], ["True"])
    engine.remove("abc", -1.0)
    assert paper.queries[-2] == {"t": ["0"]}


def test_a_container_that_is_gone_needs_no_removal(engine: Engine, paper: PaperEngine) -> None:
    for begin in ("DELETE", "POST /containers/abc/stop", "GET /containers/abc"):
        paper.answers = {begin: MISSING}
        engine.remove("abc", 1.0)
    paper.answers = {"POST /containers/abc/stop": (500, {"message": "it hangs"})}
    with pytest.raises(ProviderFailed, match="refuses to remove the container abc: it hangs"):
        engine.remove("abc", 1.0)


def test_the_end_of_a_removal_that_another_one_has_begun_is_waited_for(
    engine: Engine, paper: PaperEngine
) -> None:
    paper.answers = {"DELETE": BUSY, "POST /containers/abc/wait": (200, {"StatusCode": 0})}
    engine.remove("abc", 1.0)
    assert paper.asked[-1] == "POST /containers/abc/wait"
    assert paper.queries[-1] == {"condition": ["removed"]}
    paper.answers = {"DELETE": BUSY, "POST /containers/abc/wait": MISSING}
    engine.remove("abc", 1.0)


def test_images_are_looked_for_imported_and_tagged(
    engine: Engine, paper: PaperEngine, tmp_path: Path
) -> None:
    paper.answers["GET /images/i:1"] = (200, {"Id": "sha256:1"})
    assert engine.has_image("i:1")
    paper.answers["GET /images/i:1"] = (404, {"message": "No such image: i:1"})
    assert not engine.has_image("i:1")
    archive = tmp_path / "root.tar"
    archive.write_bytes(b"a root filesystem")
    paper.answers["POST /images/create"] = (200, {"status": "done"})
    paper.answers["POST /images/i:1/tag"] = (201, b"")
    engine.import_image(archive, "i", ["1", "latest"], ["USER roq"])
    created = paper.asked.index("POST /images/create")
    assert paper.queries[created]["repo"] == ["i"]
    assert paper.queries[created]["tag"] == ["1"]
    assert paper.queries[created]["changes"] == ["USER roq"]
    assert paper.bodies[created] == b"a root filesystem"
    assert paper.asked[-1] == "POST /images/i:1/tag"
    assert (paper.queries[-1]["repo"], paper.queries[-1]["tag"]) == (["i"], ["latest"])


def test_of_what_a_container_has_said_the_end_is_told(engine: Engine, paper: PaperEngine) -> None:
    said = b"x" * LOG_CHARACTERS_MAX + b" the end \xff\n"
    frame = b"\x01\0\0\0" + len(said).to_bytes(4, "big") + said
    paper.answers["GET /containers/abc/logs"] = (200, frame)
    words = engine.last_words("abc")
    assert words.endswith(" the end \ufffd")
    assert len(words) == LOG_CHARACTERS_MAX
    query = paper.queries[paper.asked.index("GET /containers/abc/logs")]
    assert query["tail"] == [str(LOG_LINES)]
    paper.answers["GET /containers/abc"] = MISSING
    paper.answers.pop("GET /containers/abc/logs")
    assert engine.last_words("abc") == ""


def test_an_engine_that_is_not_there_is_named_with_what_was_wanted_and_what_to_do() -> None:
    gone = Engine("tcp://127.0.0.1:9", 5.0)
    for call, wanted in (
        (lambda: gone.has_image("i:1"), "look for the image i:1"),
        (lambda: gone.start("abc"), "start the container abc"),
        (lambda: gone.put("abc", "/", {}), "write into the container abc"),
        (lambda: gone.labelled({}), "list containers"),
    ):
        with pytest.raises(ProviderFailed, match="see that it runs") as raised:
            call()
        assert str(raised.value).startswith(
            f"cannot {wanted}: the Docker Engine at tcp://127.0.0.1:9"
        )
