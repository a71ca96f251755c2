"""The assistant's model for editors and scripts: an endpoint that speaks the language of OpenAI's, on this machine alone."""
