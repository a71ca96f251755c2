"""The Assistant page: conversations, answers and proposals."""
