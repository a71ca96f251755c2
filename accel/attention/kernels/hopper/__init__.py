"""Attention kernels for NVIDIA Hopper (sm_90), written in Gluon."""
