"""Configuration files and what they name: paths, input files, and objects built from nodes."""
