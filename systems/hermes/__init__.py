"""Hermes, arXiv 2506.14851."""
