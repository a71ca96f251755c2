"""The strip of GPUs at the top of the window, and the small always-on-top version of it."""
