"""Offer attention over several GPUs to other people's code."""
