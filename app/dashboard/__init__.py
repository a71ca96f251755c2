"""The Dashboard page: charts of every device over one time axis."""
