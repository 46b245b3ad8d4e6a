"""Everything that checks Headwater. docs/testing.md says what lives where."""
