"""What seconds rest on."""

import pandas as pd

from harness.runs.basis import cost_basis


def test_the_basis_names_services_that_were_not_measured() -> None:
    used = pd.DataFrame(
        {
            "costs.profile": ["gpu", "gpu"],
            "costs.fit_error": [0.05, 0.05],
            "costs.source.a tp2": ["measured", "measured"],
            "costs.source.b tp1": ["roofline", None],
        }
    )
    assert cost_basis(used) == "gpu (fit error 5.0%), b tp1: roofline"


def test_a_profile_is_named_once_however_many_services_run_on_it() -> None:
    used = pd.DataFrame(
        {
            "costs.profile": ["gpu", "gpu", "gpu", "other"],
            "costs.fit_error": [0.008, 0.021, None, None],
        }
    )
    assert cost_basis(used) == "gpu (fit error 0.8% to 2.1%), other (fit error not stated)"


def test_the_error_of_a_roofline_is_that_of_the_engine_and_gpus_it_was_fitted_to() -> None:
    used = pd.DataFrame(
        {
            "costs.profile": ["roofline"],
            "costs.fit_error": [0.148],
            "costs.source.a tp2": ["roofline; windows count as in requests of 4,096 tokens"],
        }
    )
    assert cost_basis(used).startswith(
        "roofline (error of the roofline of vLLM 0.3 on A100s, models left out; not checked here: "
        "14.8%), a tp2: roofline"
    )
