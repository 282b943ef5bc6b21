"""Requests and responses over queues."""
