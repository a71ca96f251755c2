"""A report as a file: Markdown, HTML or PDF."""
