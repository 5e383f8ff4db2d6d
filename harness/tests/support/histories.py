"""Windows of requests for placements that plan from a history."""

from collections.abc import Sequence

import numpy as np

from harness.interface.entities import Request, ServiceId
from harness.interface.tables import RequestTable
from harness.planning.forecast import Window


def window_of_requests(
    requests: Sequence[Request], output_tokens: Sequence[int], services: Sequence[ServiceId]
) -> Window:
    """Requests that have come to a run, by arrival, which begins with the first; see `Window`."""
    rows = sorted(range(len(requests)), key=lambda at: (requests[at].arrival_s, requests[at].id))
    found, nothing = [requests[at] for at in rows], np.zeros(len(rows), np.int64)
    arrival_s = np.array([request.arrival_s for request in found])
    index = {service: at for at, service in enumerate(services)}
    table = RequestTable(
        id=np.arange(len(rows)),
        arrival_s=arrival_s - arrival_s[:1],
        prompt_tokens=np.array([request.prompt_tokens for request in found], np.int64),
        generated_tokens=nothing,
        kv_tokens=nothing,
        gpu_s=np.zeros(len(rows)),
        max_output_tokens=np.array([request.max_output_tokens for request in found], np.int64),
        deadline_s=np.full(len(rows), np.nan),
        predicted_mean_tokens=np.full(len(rows), np.nan),
        service=np.array([index[request.service] for request in found], np.int64),
        services=tuple(services),
    )
    return Window(table, np.array([output_tokens[at] for at in rows], np.int64))
