"""RoQ beside its peers, measured in one run on one machine: `make bench`.

    case.py         what is measured (Case), what a client is told (Run), what came out (Sample)
    contender.py    what the harness asks of a contender: start, stop, run(case) → Sample
    contenders/     one module each: its server, its publisher, its subscriber
    worker.py       the program in which a publisher or a subscriber runs, a process of its own
    processes.py    children, their CPU time and memory
    plan.py         which contenders meet which cases, how often and how long
    runner.py       goes through the plan, alternating contenders
    cluster.py      a RoQ cluster by `roq up`: start-up time, idle cost
    statistics.py   medians, percentiles, ratios
    targets.py      what RoQ promises to reach, and whether it did
    report.py       tables for the terminal
    picture.py      the same as a picture
    results.py      all of it as one JSON document
    durable.py      durable queues beside a bare disk and beside stores: `roq bench --durable`
    logs.py         a program of its own: the life of a log on disk

README.md says how things are measured and why the comparison is fair.
"""
