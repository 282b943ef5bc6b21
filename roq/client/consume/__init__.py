"""Consumers: members of a group that share its messages."""
