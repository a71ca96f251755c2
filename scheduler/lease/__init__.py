"""The GPU lent to the assistant, and taken back."""
