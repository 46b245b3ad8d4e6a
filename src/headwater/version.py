"""The version of this distribution, in one place."""

VERSION = "0.1.0"
