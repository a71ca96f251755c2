"""What of the assistant is measured as a job; described in `accel.workloads.catalog` beside the others."""
