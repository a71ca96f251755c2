"""Readings of the hardware."""
