"""The process that serves a language model (`python -m assistant.inference`), and its messages."""
