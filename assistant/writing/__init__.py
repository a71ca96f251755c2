"""From facts to text: templates, verification and rewinding generation."""
