"""Count the modules of ours that run on the way from an act to its effect."""
