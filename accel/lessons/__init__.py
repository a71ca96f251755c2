"""What operations learn about their backends on this machine: measured once, kept, and gone by.

`records` describes what was measured and needs no torch; `store` keeps it on disk for one
operation; `measuring` decides which calls are measured, and measures them; `usage` counts shapes,
which are measured while a GPU is idle; `spots` rounds sizes; `mode` is what `accel.learning` was
told.
"""
