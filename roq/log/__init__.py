"""The log of one exchange: what was appended, in order, and how to find it again.

Pure but for `disk`:

    log         the contract                     ring            the newest batches, in memory
    segments    the log of a durable queue       segment_reader  reads its old entries
    records     its bytes                        recovery        opens a log again
    index       where the records stand          disk            a folder of a real disk
    files       what it asks of a folder
"""
