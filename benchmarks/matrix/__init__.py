"""The matrix: kill anything, cut anything, attack anything, and count what it cost."""
