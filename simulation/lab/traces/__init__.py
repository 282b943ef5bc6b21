"""Traces of live runs: what monitors and clients said, kept as a table and turned into figures.

Everything goes through one volatile queue of its own beside the queue under load, so that it stands
in a log with offsets: clients publish `ClientTrace`s, the driver `EventTrace`s, and a tap on the
statistics stream `KpiTrace`s. A Structured Streaming query reads that queue (format `roq`) and
writes a table at a URI; batch queries make figures and series of it.
"""
