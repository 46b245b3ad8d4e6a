"""The native API at /v1/log/…: records by number and many streams at once, for programs."""
