"""Background processes of ours: one instance each, started and watched."""
