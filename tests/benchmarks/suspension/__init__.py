"""Measure suspensions of real programs on a GPU.

    python -m tests.benchmarks.suspension.service FOLDER   # the driver's calls and our part of it
    python -m tests.benchmarks.suspension.room FOLDER      # the pieces of our part
    python -m tests.benchmarks.suspension.jobs FOLDER      # jobs: free, preempt
    python -m tests.benchmarks.suspension.exchanges FOLDER exchanges   # two jobs; or turns
    python -m tests.benchmarks.suspension.users FOLDER     # ordinary users and a shared daemon

Each writes its rows to CSV files in FOLDER, after every row. GPU is the index of the GPU; without
it, the first one is taken. Without a GPU, `tests.benchmarks.suspension.stand_in` runs them with the
stand-in of the driver, which shows that they work, and no times.
"""
