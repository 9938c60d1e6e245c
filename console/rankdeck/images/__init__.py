"""Images: which bytes lie on which node, and how they get to the others."""
