"""Turn facts into text: templates, verification and rewinding generation."""
