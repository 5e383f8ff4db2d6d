"""SeaLLM: sharing GPUs among LLM services."""
