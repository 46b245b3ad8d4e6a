"""The benchmark: our server beside the reference server. Run it with `python -m bench`."""
