"""Show the assistant page: conversations, answers and proposals."""
