"""Try what the README and the manual tell people to type, by `python -m tests.manual_commands`."""
