"""SSH to the nodes, and the agent there."""

from rankdeck.remote.liboqs import hasten_search

hasten_search()  # before anything here imports asyncssh
