"""Define the commands that read and change people's own code, one file a command."""
