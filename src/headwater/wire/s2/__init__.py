"""What the S2 API puts on the wire: protobuf, session frames, JSON, events."""
