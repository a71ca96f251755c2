"""Interactive jobs: notebooks and shells that wait in the queue and end when nobody uses them."""
