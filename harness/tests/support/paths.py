"""Paths for tests."""

HARD = "/a b/[c]/d=e/'f'/\"g\"/h,i/$j/${seed}/{k}/~l/#m/%n/é日本/\\o\\"
"""A path with all that Hydra, OmegaConf or a shell could take for something else."""
