"""Recipes that come with Rankdeck, one module for each family of programs; `plugins.RECIPES` lists them."""
