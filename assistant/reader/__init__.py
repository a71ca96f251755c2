"""Read requests: a pretrained encoder, and heads that say what a request means."""
