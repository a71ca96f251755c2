"""Offer the assistant's queries as tools to other programs, by the Model Context Protocol."""
