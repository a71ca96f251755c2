"""Search for faster kernels, and judge kernels so that no result is believed that is not one.

`judge` measures a candidate beside the fastest honest alternative and checks its answers;
`optimize_kernel` searches the configurations of a kernel, has the best one judged, and installs it.
"""
