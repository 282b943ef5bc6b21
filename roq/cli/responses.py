"""`roq response`: fetch a response by the id of its request, list those that wait to be fetched.

Values are JSON here, and on the way what `--codec` says: so these commands, and `roq request`,
speak with every endpoint that has one of the two codecs by name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import click
import msgspec

import roq
from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.options import Number, cluster_before
from roq.cli.output import note, print_json, print_table
from roq.client.admin.wording import age_text, bytes_text
from roq.client.io.exchange_questions import told
from roq.client.request.endpoint import FORMATS
from roq.client.request.pending import Pending
from roq.client.request.views import RequestRow
from roq.errors import InvalidRequest, Unavailable
from roq.number_ranges import UNREADABLE
from roq.protocol.requesting import ENDS, LISTED_MAX

WAIT_SECONDS: Final = 60.0
codec_option = click.option(
    "--codec",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="That of the endpoint.",
)


@click.group()
@cluster_before
def response() -> None:
    """Fetch the response to a request by its id, list those that wait to be fetched.

    \b
    Example:
      roq response get billing.create work/x1-196610-42-0
      roq response list work billing
    """


@response.command(short_help="Fetch the response to a request.")
@click.argument("endpoint")
@click.argument("request_id", metavar="REQUEST")
@click.option(
    "--wait",
    type=Number(min=0),
    default=WAIT_SECONDS,
    show_default=True,
    help="Seconds that it is waited for.",
)
@codec_option
@cluster_command
def get(target: Target, endpoint: str, request_id: str, wait: float, codec: str) -> None:
    """Print the response of ENDPOINT to REQUEST as JSON; it is fetched by that, and not kept.

    \b
    Example:
      roq response get billing.create work/x1-196610-42-0
    """
    with target.connect() as cluster:
        print_response(cluster.response(endpoint_of(endpoint, codec), request_id), wait)


@response.command("list", short_help="List the responses of SERVICE that wait to be fetched.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("service", shell_complete=completion.groups)
@cluster_command
def list_(target: Target, queue: str, service: str) -> None:
    """List the requests of SERVICE that have ended and whose outcome nobody has fetched, the oldest
    first.

    STATE says how each has ended, and WHY what it was if there is no response. An outcome is kept
    for `keep_result` after its request has ended. Of each exchange 1,000 requests are looked at:
    half of them open and half ended, if there are so many.

    \b
    Example:
      roq response list work billing
      roq response list work billing --json | jq -r '.[].id'
    """
    nothing = f"Service {service} of queue {queue} keeps no response"
    print_requests(target, queue, service, nothing, states=ENDS)


def print_requests(
    target: Target, queue: str, service: str, nothing: str, states: Collection[str] = ()
) -> None:
    """Requests of a service as a table, or as JSON; which could not be looked at is noted.

    Args:
        nothing: what is said if there are none, without the full stop.
        states: those alone; all if it is empty.
    """
    with target.connect() as cluster:
        row = cluster.describe_service(queue, service, timeout=target.timeout)
    requests = [each for each in row.requests if not states or each.state in states]
    if target.as_json:
        print_json(msgspec.to_builtins(requests))
    else:
        some = " among those that could be looked at" if row.more or row.missing else ""
        _print_table(requests, f"{nothing}{some}.")
    if row.more:
        note(f"an exchange tells of {LISTED_MAX:,} requests at most, and there are more")
    if row.missing:
        note(f"without {told(row.missing)}")


def _print_table(requests: list[RequestRow], nothing: str) -> None:
    print_table(
        ("REQUEST", "STATE", "AGE", "ATTEMPTS#", "INSTANCE", "SIZE#", "WHY"),
        [
            (
                each.id, each.state, age_text(each.age_seconds), each.attempts,
                each.instance or "-", bytes_text(each.bytes), each.text.splitlines()[0][:80]
                if each.text else "-",
            )
            for each in requests
        ],
        nothing,
    )  # fmt: skip


def endpoint_of(name: str, codec: str, *, idempotent: bool = False) -> roq.Endpoint[Any, Any]:
    """The endpoint of this name, whose values are whatever JSON can say."""
    return roq.endpoint(name, request=object, response=object, idempotent=idempotent, codec=codec)


def print_response(pending: Pending[Any], wait: float) -> None:
    """As one line of JSON; bytes in it become base64.

    Raises:
        Unavailable: it has not come within `wait` seconds; how to ask again is said.
        InvalidRequest: JSON cannot say it.
    """
    name = pending.endpoint.name
    try:
        value = pending.result(wait)
    except Unavailable as error:
        again = f"`roq response get {name} {pending.id}` asks for it again"
        raise Unavailable(f"{error}; {again}") from None
    click.echo(as_json(name, value))


def as_json(endpoint: str, value: object) -> bytes:
    """A response of an endpoint in JSON.

    Raises:
        InvalidRequest: JSON cannot say it.
    """
    try:
        return msgspec.json.encode(value)
    except UNREADABLE as error:
        raise InvalidRequest(
            f"the response of {endpoint} cannot be said in JSON: {error}"
        ) from None
