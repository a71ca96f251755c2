"""Define the commands that submit, list and control jobs, one file a command."""
