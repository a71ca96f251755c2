"""Values as text: numbers with units, devices and jobs in a line."""
