"""Measure parts of the assistant as jobs; `accel.workloads.catalog` describes them beside the
others.
"""
