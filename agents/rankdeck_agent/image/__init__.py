"""Images on this node: which bytes lie where, and how new ones come in whole."""
