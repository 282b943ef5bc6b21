"""Everything that runs in a user's process: one I/O thread, and machines that decide.

    user's thread                                     I/O thread (engine)
    ─────────────                                     ───────────────────
    Cluster ──────── management commands ───────────▶ management ──▶ configuration managers
    Publisher.publish()                               session ─────▶ the queue's monitor
      └ packer: open batch per topic                    (machine: session_machine)
      └ writer: seals it                              driver: connection, timers, events
      └ driver: sends, reads acks  ◀── one lock ──▶     (machines: link, outbox, topics)
    Subscriber  ◀── handoff: lists of batches ─────── feed, tap ◀── exchanges
                                                        (machines: reception, reader, merge)
    Watch       ◀── typed states ──────────────────── watch ◀── configuration broadcast
    on_state(), log ◀── notices ───────────────────── lookout, twice a second (pulse)
                                                        (machine: watchdog, why nothing flows)

Whatever is lost is looked for again at once, then after waits that are drawn anew each time
(`backoff`); configuration managers are asked over one connection for everybody (`directory`).

`roq.aio` offers the same objects to asyncio; only the waiting differs (`bell`).
"""
