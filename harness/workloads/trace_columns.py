"""Names of the columns that every trace is read into."""

ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS = "arrival_s", "prompt_tokens", "output_tokens"
OPTIONAL = ("service", "tenant", "app", "priority", "deadline_s", "predicted_tokens", "prompt")
HASHES = "hash_ids"
SESSION, DELAY, KEPT = "session", "delay_s", "kept_tokens"
"""Of turns: the session, seconds from the answer before, and tokens of the session's context before
that the prompt begins with (without the column: all of it). `prompt_tokens` are then the new ones.
"""
OWN = (ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS, *OPTIONAL, HASHES, SESSION, DELAY, KEPT)
"""Columns of a file of the user's own, and names in `workload.columns`."""
SHARES, SHARED = "shares", "shared_tokens"
"""Of prompts that begin alike: the name of their beginning, and its tokens."""
IDS = ("id", "request_id")
NOTES = "notes"
"""Of `attrs`: what was assumed or left out."""
