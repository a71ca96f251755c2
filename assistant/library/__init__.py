"""Manage the user's models: describe them without loading, list them, and fetch them.

This package does not need torch.
"""
