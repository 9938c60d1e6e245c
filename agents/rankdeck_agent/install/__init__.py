"""The agent as a service of its node: put there to stay, and taken away again."""
