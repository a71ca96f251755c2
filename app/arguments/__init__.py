"""What can be said after each command: a module a kind of command, a function a command; loaded for the command that is run."""
