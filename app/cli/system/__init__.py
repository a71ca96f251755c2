"""Define the commands that maintain GPU Deck itself, one file a command."""
