"""The log of one exchange: what was appended, in order, and how to find it again.

Pure but for `disk`:

log         the contract                     ring       the newest batches, in memory
segments    the log of a durable queue       recovery   opens it again
records     its bytes                        index      where its records stand
files       what it asks of a folder         disk       a folder of a real disk
"""
