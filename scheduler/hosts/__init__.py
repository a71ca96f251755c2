"""Other machines over ssh: the reader that is sent there, and what it sends back."""
