"""The log of one exchange: what was appended, in order, and how to find it again. Pure.

`ring` keeps the newest batches of a volatile queue in memory.
"""
