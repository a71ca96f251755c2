"""The version of GPU Deck, in its only place."""

VERSION = "0.1.0"
