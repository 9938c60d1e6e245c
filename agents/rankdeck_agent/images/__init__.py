"""Container images and other files on this node: finds, hashes, sends and receives them."""
