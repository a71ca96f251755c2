"""The assistant's process: a server, a queue of requests, and a handler for each kind of request."""
