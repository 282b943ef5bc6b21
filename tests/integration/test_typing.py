"""Type checkers see whether handlers and callers fit their endpoint, and where they do not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 250
PROGRAM = """\
import roq
import roq.aio

ASK = roq.endpoint("s.ask", request=int, response=str)


def handlers(service: roq.Service) -> None:
    @service.handler(ASK)
    def fits(number: int, context: roq.RequestContext) -> str:
        return f"{number} of {context.id}"

    @service.handler(ASK)
    async def waits(number: int, context: roq.RequestContext) -> str:
        return f"{number}, attempt {context.attempt}"

    @service.handler(ASK, batch=3)
    def all_of(
        numbers: list[int], contexts: list[roq.RequestContext]
    ) -> list[str | BaseException]:
        return [str(number) for number in numbers]

    @service.handler(ASK)  # wrong
    def takes_text(text: str, context: roq.RequestContext) -> str:
        return text

    @service.handler(ASK)  # wrong
    def gives_a_number(number: int, context: roq.RequestContext) -> int:
        return number

    @service.handler(ASK)  # wrong
    async def comes_to_a_number(number: int, context: roq.RequestContext) -> int:
        return number

    @service.handler(ASK)  # wrong
    def has_no_context(number: int) -> str:
        return str(number)

    @service.handler(ASK, batch=3)  # wrong
    def is_no_batch(number: int, context: roq.RequestContext) -> str:
        return str(number)

    @service.handler(ASK, batch=3)  # wrong
    def gives_numbers(numbers: list[int], contexts: list[roq.RequestContext]) -> list[int]:
        return numbers


def callers(cluster: roq.Cluster, requester: roq.Requester) -> tuple[str, list[str]]:
    requester.request(ASK, "seven")  # wrong
    requester.request_many(ASK, ["seven"])  # wrong
    requester.send(ASK, b"seven")  # wrong
    requester.send(ASK, 7, inherit=1.5)  # wrong
    number: int = requester.request(ASK, 7).result()  # wrong
    numbers: list[int] = requester.request_many(ASK, [7]).result()  # wrong
    requester.request(ASK, 7).on_done(lambda done: done.result().bit_length())  # wrong
    cluster.response(ASK, 7)  # wrong
    cluster.describe_request("s.ask", "work/x1-1-0-0")  # wrong
    many = requester.request_many(ASK, [number, *numbers])
    return requester.request(ASK, 7).result(), many.result()


async def loop(requester: roq.aio.Requester, service: roq.aio.Service) -> str:
    @service.handler(ASK)  # wrong
    async def comes_to_bytes(number: int, context: roq.RequestContext) -> bytes:
        return bytes(number)

    await requester.request(ASK, None)  # wrong
    number: int = await (await requester.request(ASK, 7))  # wrong
    return await (await requester.request(ASK, number))
"""
WRONG = [n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    made = tmp_path / "program.py"
    made.write_text(PROGRAM)
    return made


def run(*command: str | Path) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_mypy_sees_what_does_not_fit_and_nothing_else(program: Path) -> None:
    told = run(sys.executable, "-m", "mypy", "--strict", "--no-error-summary", program)
    found = re.findall(r"program\.py:(\d+): error:", told)
    assert sorted({int(line) for line in found}) == WRONG, told


@pytest.mark.long
def test_pyright_sees_the_same(program: Path) -> None:
    """As basedpyright, which pip installs with all that it needs; with the rules of pyright."""
    found = shutil.which("basedpyright") or shutil.which("pyright")
    if found is None:
        pytest.skip("neither basedpyright nor pyright is installed")
    (program.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    told = run(found, "--outputjson", "--pythonpath", sys.executable, "--project", program.parent)
    lines = {
        each["range"]["start"]["line"] + 1
        for each in msgspec.json.decode(told)["generalDiagnostics"]
        if each["severity"] == "error"
    }
    assert sorted(lines) == WRONG, told
