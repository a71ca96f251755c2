"""The device page: everything that is known about one device."""
