"""What the seconds of runs rest on, in the words of a footer."""

import pandas as pd

from harness.costs.model_names import model_of

OF_ROOFLINE = "error of the roofline of vLLM 0.3 on A100s, models left out; not checked here:"


def cost_basis(used: pd.DataFrame) -> str:
    """What the seconds of these runs rest on: cost profiles with their relative fit errors.

    Models whose costs were not measured at the tensor-parallel degree at which they ran are named
    with it and with what stands in for them.
    """
    if "costs.profile" not in used:
        return "profile not stated"
    prefix = "costs.source."
    sources = used[[column for column in used if str(column).startswith(prefix)]]
    borrowed = {
        f"{_model(str(column).removeprefix(prefix))}: {source}"
        for column in sources
        for source in sources[column].dropna().unique()
        if source != "measured"
    }
    errors = used.reindex(columns=["costs.profile", "costs.fit_error"]).groupby("costs.profile")
    labels = [str(source) for column in sources for source in sources[column].dropna()]
    is_roofline = bool(labels) and all(label.startswith("roofline") for label in labels)
    what = OF_ROOFLINE if is_roofline else "fit error"
    texts = [f"{name} ({what} {_span(one['costs.fit_error'])})" for name, one in errors]
    return ", ".join([*sorted(texts), *sorted(borrowed), *outside_note(used)])


def _model(place: str) -> str:
    """The model and the degree of a service (`model~service tp2`)."""
    service, _, degree = place.rpartition(" ")
    return f"{model_of(service)} {degree}"


def _span(errors: "pd.Series[float]") -> str:
    """From the least to the most, as shares; runs have the errors of the services in them."""
    least, most = f"{errors.min():.1%}", f"{errors.max():.1%}"
    if errors.isna().all():
        return "not stated"
    return most if least == most else f"{least} to {most}"


def outside_note(used: pd.DataFrame) -> list[str]:
    """How much of these runs lies beyond what their profiles measured; nothing where none does."""
    named = "outside_profile_share"
    if named not in used:
        return []
    shares = pd.to_numeric(used[named], errors="coerce").dropna()
    most = f"{shares.max():.1%}" if len(shares) else "0.0%"
    return (
        [] if most == "0.0%" else [f"up to {most} of a run's GPU seconds outside what it measured"]
    )
