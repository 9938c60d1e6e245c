"""Recipes that come with Rankdeck, one module for each family of
programs; `plugins.RECIPES` lists them.
"""

from functools import cache
from importlib.resources import files


@cache
def node_program_text(name: str) -> str:
    """The text of one of the files here that run on the nodes."""
    return files(__name__).joinpath(name).read_text("utf-8")
