"""A client's session with the monitor of its queue, and how a publisher or subscriber stands."""
