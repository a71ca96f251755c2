"""Show the page of the language models on disk and on the hub."""
