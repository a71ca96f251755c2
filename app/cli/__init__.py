"""Run GPU Deck from the command line."""
