"""The log of one exchange: what was appended, in order, and how to find it again.

Pure but for `disk`:

    log         the contract                     ring            the newest batches, in memory
    segments    the log of a durable queue       hot_tail        its newest batches
    records     its bytes                        segment_reader  reads old entries
    index       where the records stand          recovery        opens a log again
    files       what it asks of a folder         disk            a folder of a real disk
"""
