"""Who is told what, where: destinations, messages, and their delivery outside of the daemon."""
