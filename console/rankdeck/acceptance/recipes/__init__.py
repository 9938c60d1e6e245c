"""Recipes that come with Rankdeck, one module a family of programs; `plugins.RECIPES` names them."""
