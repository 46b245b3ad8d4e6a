"""Bytes to values and back. Pure, shared by the server and its clients."""
