"""What several test folders share: builders, fakes, and a real server in a process."""
