"""One folder per HTTP API: parse, one engine call, render."""
