"""Show the jobs page: all jobs, their details, their logs and the form of a new job."""
