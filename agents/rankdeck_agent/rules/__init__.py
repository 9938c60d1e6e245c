"""How a node is judged: one table, pure functions; the console and `rankdeck-agent health` share it."""
