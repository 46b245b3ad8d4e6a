"""The `headwater` command, one file per subcommand."""
