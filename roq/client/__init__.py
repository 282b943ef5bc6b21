"""Everything that runs in a user's process: one I/O thread, and machines that decide.

    user's thread                                     I/O thread (`io.engine`)
    ─────────────                                     ────────────────────────
    Cluster ──────── management commands ───────────▶ admin ───────▶ configuration managers
    Publisher.publish()                               session ─────▶ the queue's monitor
      └ batching: open batch per topic                  (machine: session.machine)
      └ machine: seals it                             publish.shell: connection, timers, events
      └ shell: sends, reads acks   ◀── one lock ──▶     (machines: machine, link, send_window)
    Subscriber  ◀── receive_queue: lists of batches ─ subscribe.shell ◀── exchanges
                                                        (machines: machine, reader, resequencer)
    Watch       ◀── typed states ──────────────────── admin.broadcast ◀── configuration broadcast
    on_state(), log ◀── callbacks ─────────────────── session.status_reporter, twice a second
                                                        (machine: status, why nothing flows)

The folders build on each other in one direction: a publisher and a subscriber know nothing of each
other, both have a session, and everything runs in `io`. What command line and console need for
operators stands in `operate`, on top of all.

What is lost is looked for again at once, then after waits that are drawn anew each time
(`roq.runtime.backoff`). All parts of a client ask configuration managers over one connection to
each (`roq.runtime.rpc_connections`), and share one to each monitor (`io.monitor_connections`).

`roq.aio` offers the same objects to asyncio; only the waiting differs (`io.bell`).
"""
