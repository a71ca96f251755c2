"""The assistant's process: a server, a queue, and a handler for each kind of request."""
