"""Podman and Docker: engines that keep images in a store of their own, and start containers that
are not children of whoever asked for them.

`has_store` of the console's runtimes says the same; a test compares both.
"""

ENGINES = {"podman": ("rm", "--force", "--ignore", "--time", "0"), "docker": ("rm", "--force")}
"""Name of an engine, which is also its program -> its arguments that remove containers by id."""
