"""Words: facts read from the daemon, told by a local RWKV-7 or by the template writer."""
