"""A client's session with the monitor of its queue."""
