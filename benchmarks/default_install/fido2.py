"""Stands for a library of an extra: measured programs have what a default install has."""

raise ImportError("an extra brings it, not the default install")
