"""Container images: which node has which version of an image, and copying images to nodes."""
