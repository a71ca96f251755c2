"""Write a report to a Markdown, HTML or PDF file."""
