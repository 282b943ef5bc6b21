"""Programs that put a real cluster under load and look at what it does.

    place.py      where the cluster runs: loopback, or hosts of a real network with limited links
    profile.py    load over time
    job.py        what a worker process is told, and what it says
    worker.py     the worker process: one publisher or one subscriber
    naive.py      the same on bare ZeroMQ sockets, for comparison
    crew.py       all workers of a scenario, seen by the process that started them
    stage.py      cluster, crew and recording together, and the loop that drives them
    record.py     what was seen: the statistics stream, and the scenario's own marks
    measures.py   what follows from a record; pure
    picture.py    throughput over time, with moves and scale operations
    results.py    what a scenario prints and writes

The scenarios stand above: `python -m roq.simulation.NAME`, with NAME one of `elastic`, `moves`,
`published`, `hosts`, `reaction`.
"""
