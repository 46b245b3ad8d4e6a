"""Sockets, HTTP, settings, limits, and the composition root."""
