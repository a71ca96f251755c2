"""What operations learn about their backends on this machine: measured once, kept, and gone by.

`records` describes what was measured and needs no torch; `store` keeps it on disk for one
operation, unless `accel.learning` is off; `usage` counts shapes, and decides which calls are
measured; `measuring` measures them.
"""
