"""The web console: a cluster in a browser, to look at and to operate.

    browser ──GET──►  guard ─► pages ──────────┐
            ◄─SSE───  guard ─► live ─► pages ──┤──► source: one connection, one thread
            ──POST─►  guard ─► actions ────────┘    that follows all queues, shared looks
                                  └──► audit

Pages are made on the server and work without JavaScript. Fragments of a page that may change are
made once a second for all browsers that have it open, and sent to them as server-sent events. What
changes the cluster stands on a page of its own, which says first what it will do.
"""
