"""The arrays that compiled code reads and writes."""

import numba
import numpy as np
import pandas as pd

from harness.engines.state import new_arrays


def test_code_is_compiled_once_whatever_the_tokens_come_in() -> None:
    """A data frame's columns may not be written; the kernel was compiled anew for them."""
    tokens = np.arange(1, 5)
    frame = pd.DataFrame({"prompt": tokens, "output": tokens})
    of_frame = (frame["prompt"].to_numpy(), frame["output"].to_numpy())
    assert not of_frame[0].flags.writeable
    kinds = [
        numba.typeof(new_arrays(prompt, output, 0 * prompt, np.zeros(len(prompt))))
        for prompt, output in (of_frame, (tokens, tokens), (tokens[::2], tokens[::2]))
    ]
    assert kinds[0] == kinds[1] == kinds[2]
