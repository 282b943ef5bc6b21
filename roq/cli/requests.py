"""`roq request`: make a request by hand, list those that are there, show one, cancel it."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

import roq
from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.options import Number, cluster_before, texts_option
from roq.cli.output import done, note, print_fields, print_json
from roq.cli.responses import (
    WAIT_SECONDS,
    as_json,
    codec_option,
    endpoint_of,
    print_requests,
    print_response,
)
from roq.client.admin.wording import age_text, bytes_text
from roq.errors import NoResponse
from roq.number_ranges import UNREADABLE
from roq.protocol.columns import PRIORITY_MAX
from roq.protocol.requesting import ENDS, RequestState


@click.group()
@cluster_before
def request() -> None:
    """Make a request, list the requests of a service, show one, cancel it, run it again.

    ENDPOINT is the name of the service, a dot, and what it does: billing.create.

    \b
    Example:
      roq request send work billing.create '{"number": 7}'
      roq request list work billing
      roq request show billing.create work/x1-196610-42-0
      roq response get billing.create work/x1-196610-42-0
    """


@request.command(short_help="Request VALUE of ENDPOINT, and print the response.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("endpoint")
@click.argument("value", default="null")
@click.option(
    "--wait",
    type=Number(min=0),
    default=WAIT_SECONDS,
    show_default=True,
    help="Seconds that the response is waited for; 0: print the id of the request, and end.",
)
@click.option(
    "--idempotent", is_flag=True,
    help="Doing it twice does no harm: it is begun again if its instance is lost.",
)  # fmt: skip
@click.option(
    "--delay", type=Number(min=0), help="Seconds before which nobody gets it.",
)  # fmt: skip
@click.option(
    "--priority", type=click.IntRange(0, PRIORITY_MAX), default=0, show_default=True,
    help="Of the requests that wait for an instance higher ones go out first.",
)  # fmt: skip
@texts_option("--header", "headers", help="A text for the handler; may be repeated.")
@codec_option
@cluster_command
def send(
    target: Target, queue: str, endpoint: str, value: str, wait: float, idempotent: bool,
    delay: float | None, priority: int, headers: dict[str, str], codec: str,
) -> None:  # fmt: skip
    """Request VALUE, which is JSON, of ENDPOINT through QUEUE, and print the response as JSON.

    The id goes to standard error as soon as the request is accepted; `roq response get` asks
    for the response by it, also from elsewhere.

    \b
    Example:
      roq request send work billing.create '{"number": 7}'
      roq request send work billing.create '{"number": 7}' --wait 0
      roq request send work billing.create '{"number": 7}' --wait 0 --delay 3600
      roq request send work billing.create 7 --priority 5 --header by=me
    """
    asked = endpoint_of(endpoint, codec, idempotent=idempotent)
    try:
        decoded = msgspec.json.decode(value)
    except UNREADABLE as error:
        raise click.UsageError(f"{value!r:.80} is no JSON: {error}") from None
    with target.connect() as cluster, cluster.requester(queue, collect=wait > 0) as requester:
        pending = requester.request(asked, decoded, headers=headers, priority=priority, delay=delay)
        if pending.accepted is not None:
            pending.accepted.wait(target.timeout)
        if not wait:
            done(pending.id, as_json=target.as_json, id=pending.id)
            return
        note(f"Request {pending.id} is accepted.")
        print_response(pending, wait)


@request.command("list", short_help="List the requests of SERVICE.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("service", shell_complete=completion.groups)
@cluster_command
def list_(target: Target, queue: str, service: str) -> None:
    """List the requests of SERVICE that are open or whose outcome is kept, the oldest first.

    At most 1,000 of each exchange: half of them open and half ended, if there are so many. AGE
    counts from when the request was accepted, or has ended.

    \b
    Example:
      roq request list work billing
      roq request list work billing --json | jq '.[] | select(.state == "failed")'
    """
    print_requests(
        target, queue, service,
        f"Service {service} of queue {queue} has no request that is open or kept",
    )  # fmt: skip


@request.command(short_help="Show how a request stands.")
@click.argument("endpoint")
@click.argument("request_id", metavar="REQUEST")
@cluster_command
def show(target: Target, endpoint: str, request_id: str) -> None:
    """Show how REQUEST to ENDPOINT stands; nothing is fetched by that.

    OUTCOME is `open` as long as it has not ended, `kept` as long as its response, or why there is
    none, can be fetched, and then `gone`: STATE says whether that was fetched (retrieved), has
    expired, is forgotten, went with its exchange (lost), or whether there was no such request
    (never). SINCE is when it was accepted, or has ended.

    \b
    Example:
      roq request show billing.create work/x1-196610-42-0
      roq request show billing.create work/x1-196610-42-0 --json | jq -r .state
    """
    asked = roq.endpoint(endpoint, request=object, response=object)
    with target.connect() as cluster:
        found = cluster.describe_request(asked, request_id, timeout=target.timeout)
    if target.as_json:
        print_json(found)
        return
    since = None if found.since is None else datetime.fromtimestamp(found.since).astimezone()
    print_fields(
        [
            ("request", found.id),
            ("state", found.state),
            ("outcome", found.outcome),
            ("since", since and f"{since:%Y-%m-%d %H:%M:%S}, {age_text(found.age_seconds)} ago"),
            ("attempts", found.attempts),
            ("instance", found.instance),
            ("response", bytes_text(found.bytes)),
            ("why", found.text),
        ]
    )


@request.command(short_help="Cancel a request.")
@click.argument("endpoint")
@click.argument("request_id", metavar="REQUEST")
@codec_option
@cluster_command
def cancel(target: Target, endpoint: str, request_id: str, codec: str) -> None:
    """Cancel REQUEST to ENDPOINT: what has not begun never is, and what runs is told.

    Says how it has ended, which may be before it was cancelled: then its response, or why there is
    none, is printed as well, and fetched by that. One that is not known is an error, as is one
    whose response was fetched before.

    \b
    Example:
      roq request cancel billing.create work/x1-196610-42-0
    """
    with target.connect() as cluster:
        pending = cluster.response(endpoint_of(endpoint, codec), request_id)
        pending.cancel()
        more: dict[str, object]
        try:
            value = as_json(endpoint, pending.result(target.timeout))
        except NoResponse as ending:
            if ending.state not in ENDS:
                raise
            state, why = ending.state, str(ending)
            more = {"text": why}
        else:
            state, why = pending.state, value.decode()
            more = {"response": msgspec.Raw(value)}
    if target.as_json:
        click.echo(msgspec.json.encode({"ok": True, "id": request_id, "state": state, **more}))
        return
    click.echo(f"request {request_id}: {state}")
    if state != RequestState.CANCELLED:
        click.echo(why)


@request.command(short_help="Have a request that has ended run again.")
@click.argument("endpoint")
@click.argument("request_id", metavar="REQUEST")
@cluster_command
def retry(target: Target, endpoint: str, request_id: str) -> None:
    """Have REQUEST to ENDPOINT run once more under its id, with a new time.

    It is `failed`, `discarded` or `unknown`, nobody has fetched that, and what was requested is
    still in the log of its exchange; else this is an error. One that is `unknown` may have run
    before: then it is done twice, be it idempotent or not.

    \b
    Example:
      roq request list work billing
      roq request retry billing.create work/x1-196610-42-0
      roq response get billing.create work/x1-196610-42-0
    """
    asked = roq.endpoint(endpoint, request=object, response=object)
    with target.connect() as cluster:
        cluster.retry_request(asked, request_id, timeout=target.timeout)
    done(f"request {request_id} runs again", as_json=target.as_json, id=request_id)
