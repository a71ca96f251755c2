"""AMD and Intel GPUs, by the files that their kernel drivers have in sysfs."""
