"""The main job on real input: the whole Python standard library, line by line, through a cluster.

    corpus.py   which files, under which topic, by which publisher
    worker.py   the publisher and subscriber processes
    report.py   what they say to the process that started them
    latency.py  percentiles out of millions of values in a few kilobytes
    run.py      starts the cluster and the workers and follows them
    verdict.py  whether what came out is what went in

Nothing here prints: `roq demo` (roq/cli/demo.py) shows it.
"""
