"""Carries out scaling studies: their runs as jobs, one after the other."""
