"""Measure attention over the GPUs of one host, beside other packages, and check it."""
