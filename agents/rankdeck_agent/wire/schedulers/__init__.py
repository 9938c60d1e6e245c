"""What console and agent say to each other of Slurm and Kubernetes."""
