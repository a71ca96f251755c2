"""Measure parts of the assistant as jobs; `gpudeck.accel.workloads.catalog` describes them beside
the others.
"""
