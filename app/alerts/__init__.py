"""The Alerts page: which alerts are raised, and past ones."""
