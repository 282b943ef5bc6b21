"""An exchange: one log, its publishers and its readers.

    publishers ──[topic][batch]──▶ data (ROUTER) ──▶ ExchangeCore ──▶ Ring
               ◀──── acks ────────                        │
    readers    ──── heads, fetch ─▶ data                  ▼
               ◀── topic, entry, batch ──────────── live (XPUB)

* `machine` decides: `ExchangeCore`, fed by the shell, without a clock or a socket of its own.
  `intake` takes batches in, `publishers` says who may send, `links` and `streams` hold what is
  known of them; `requests` keeps readers in line, `readers` answers what is asked of the log,
  `fetches` sends old batches piece by piece, `subscriptions` counts who listens.
* `daemon` is the shell: two sockets, one thread, bursts. `control` tells the host manager and the
  monitor how it goes. `config` reads what the host manager wrote down.

The exchange serves on when monitor, host manager and everything else are away.
"""
