"""Settings that no workload can be made of are refused by the name they have in a scenario."""


def require_positive(where: str, **values: float) -> None:
    """Raise ValueError for the first value that is not positive, named below `where`."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{where}.{name} is {value}, it must be positive")
