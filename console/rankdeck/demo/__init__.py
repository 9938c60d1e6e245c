"""The embedded cluster: virtual nodes on this machine, each a real SSH server."""
