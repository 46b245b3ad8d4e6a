"""The rules of a stream: pure, deterministic, no I/O, no clock, no await."""
