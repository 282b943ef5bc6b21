"""Decisions: which exchange gets a publisher, which host a process. Pure."""
