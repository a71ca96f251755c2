"""Chart widgets and time series that several pages share."""
