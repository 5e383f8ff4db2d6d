"""EcoServe, arXiv 2411.06364."""
