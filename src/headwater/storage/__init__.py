"""What is on disk. Synchronous; the only code that knows keys."""
