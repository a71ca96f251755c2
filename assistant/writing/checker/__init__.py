"""Read the sentences of a text as claims, each bound to a device or job, and check every claim."""
