"""The arguments of the commands, loaded only for the command that runs."""
