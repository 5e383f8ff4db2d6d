"""SSJF: the policy, what its paper claims, and what is measured for that."""
