"""The Machines page: other machines, whose devices are read over ssh."""
