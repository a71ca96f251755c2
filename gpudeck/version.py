"""The version of GPU Deck, in its only place."""

VERSION = "0.2.0"
