"""Headwater: durable streams over HTTP."""

from headwater.version import VERSION as __version__

__all__ = ["__version__"]
