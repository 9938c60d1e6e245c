"""What a job would find on this node, and whether it can reach the others."""
