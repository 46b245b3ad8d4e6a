"""asyncio: turns the decisions of core into durable effects and wakes readers."""
