"""Measure speed, cost and accuracy.

`python -m tests.benchmarks` (make bench) runs what needs no GPU; the other modules say what they
need.
"""
