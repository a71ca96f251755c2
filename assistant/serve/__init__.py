"""An endpoint for editors and scripts on this machine, compatible with OpenAI's API."""
