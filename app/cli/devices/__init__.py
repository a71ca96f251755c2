"""Define the commands that show and record the devices, one file a command."""
