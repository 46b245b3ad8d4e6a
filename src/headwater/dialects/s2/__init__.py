"""The S2 API: basins, streams, records, sessions."""
