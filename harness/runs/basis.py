"""What the seconds of runs rest on, in the words of a footer."""

import pandas as pd


def cost_basis(used: pd.DataFrame) -> str:
    """What the seconds of these runs rest on: cost profiles with their relative fit errors.

    Services whose costs were not measured at the tensor-parallel degree at which they ran are named
    with it and with what stands in for them.
    """
    if "costs.profile" not in used:
        return "profile not stated"
    prefix = "costs.source."
    borrowed = {
        f"{column.removeprefix(prefix)}: {source}"
        for column in used.columns
        if column.startswith(prefix)
        for source in used[column].dropna().unique()
        if source != "measured"
    }
    named = used.reindex(columns=["costs.profile", "costs.fit_error"]).drop_duplicates()
    texts = [
        f"{name} (fit error {error:.1%})" if pd.notna(error) else f"{name} (fit error not stated)"
        for name, error in named.itertuples(index=False)
    ]
    return ", ".join([*sorted(texts), *sorted(borrowed)])
