"""The command line's verbs. Each takes the parsed arguments, prints, and returns the exit status."""
