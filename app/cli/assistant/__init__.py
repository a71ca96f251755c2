"""Define the commands of the assistant and its models, one file a command."""
