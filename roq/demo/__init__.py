"""The main job on real input: the whole Python standard library, line by line, through a cluster.

    corpus.py   which files, under which topic, by which publisher
    worker.py   the publisher and subscriber processes
    lane.py     how such a process is started and followed
    report.py   what they say to the process that started them, and whether what came out is what
                went in
    latency.py  percentiles out of millions of values in a few kilobytes
    run.py      starts the cluster and the workers and follows them

Nothing here prints: `roq demo` (roq/cli/demo.py) shows it.
"""
