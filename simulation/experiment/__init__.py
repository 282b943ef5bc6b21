"""Programs that put a real cluster under load and look at what it does.

    place.py      where the cluster runs: loopback, or hosts of a real network with limited links
    profile.py    load over time
    under_load.py      cluster, workers and recording together, and the loop that drives them
    record.py     what was seen: the statistics stream, and the scenario's own marks
    measures.py   what follows from a record; pure
    results.py    what a scenario prints and writes

The scenarios stand above: `python -m roq.simulation.NAME`, with NAME one of `elastic`, `moves`,
`published`, `hosts`, `reaction`.
"""
