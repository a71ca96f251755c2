"""Ask what the program knows: a typed query goes in, rows with units and sources come out."""
