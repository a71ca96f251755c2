"""Background processes: one instance of each, started on demand."""
