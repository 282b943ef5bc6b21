"""Definitions in the registry: read, committed under a fence, and restored when they are lost."""
