"""Session affinity: requests of a session go to the group that had the session before.

Paper      none; documentation of the gateway SMG, "Sticky Sessions and Routing Keys"
           (github.com/smg-project/smg-docs, concepts/routing/sticky-sessions.md), policy `manual`.
Idea       The group that served a session's last turn has the KV of its context. A key, here the
           session, is kept with the group that it was first given to.
Map        the map from keys to workers -> `_home`
           assignment of a new key      -> the group with the fewest unanswered requests
Constants  none
Differs    the key is the application of a request: a session, or the request itself where it is in
           none. Keys do not expire. A session whose group is gone counts as a new one. Of equally
           loaded groups the first of the deployment is taken, which is not stated. Calls that
           follow each other without a pause stay in their group by the engine's rule, do not come
           to this policy and are not counted
Checked    baselines/tests/test_session_affinity.py::test_a_session_returns_to_its_group_by_hand
"""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from harness.interface.entities import GroupId, ServiceId
from harness.interface.views import ClusterView


class SessionAffinity:
    """Dispatch policy. It keeps what it sent where, and reads which requests are unanswered."""

    reads_load: ClassVar[bool] = False
    reads_unfinished: ClassVar[bool] = True

    def __init__(self) -> None:
        self._home: dict[tuple[ServiceId, int], GroupId] = {}
        self._open: dict[ServiceId, dict[int, GroupId]] = {}

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> list[GroupId]:
        """The group of each request's session, or the least loaded one."""
        table = view.unfinished(service)
        session = dict(zip(table.id.tolist(), table.app.tolist(), strict=True))
        homes = [group.id for group in view.deployment.groups if service in group.services]
        before = self._open.get(service, {})
        still = session.keys() - set(requests)
        sent = {request: group for request, group in before.items() if request in still}
        load = Counter(sent.values())
        for request in requests:
            key = service, session[request]
            if self._home.get(key) not in homes:
                self._home[key] = min(homes, key=load.__getitem__)
            sent[request] = self._home[key]
            load[sent[request]] += 1
        self._open[service] = sent
        return [sent[request] for request in requests]
