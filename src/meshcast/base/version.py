"""The version of meshcast, in one place."""

VERSION = "0.4.0"
