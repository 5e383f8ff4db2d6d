"""What a policy knows of applications from events: where each is, and the service it has had."""

from dataclasses import dataclass

import numpy as np

from harness.interface.entities import AppId, GroupId, Request
from harness.interface.events import (
    AppArrived,
    AppFinished,
    Event,
    Finished,
    UnitFinished,
    UnitStarted,
)
from harness.interface.tables import Floats, Ints, RequestTable

OBSERVED: frozenset[type[Event]] = frozenset(
    {AppArrived, UnitStarted, Finished, UnitFinished, AppFinished}
)
"""Events that `Attained` follows."""


@dataclass(slots=True)
class Application:
    """An unfinished application.

    `upstream` is the latest unit that has ended and called an LLM.
    """

    kind: str
    upstream: UnitFinished | None = None


class Attained:
    """Service of each application: its tokens in seconds each, and seconds outside any LLM.

    A prompt counts once it has given a token. Calls that have not ended count for the group that
    was asked about them last alone: groups may be processes of their own, which see of each other
    what events tell.
    """

    def __init__(self, *, prompt_token_s: float, output_token_s: float) -> None:
        """Count a token of a prompt and of an answer as so many seconds."""
        self._prompt_token_s, self._output_token_s = prompt_token_s, output_token_s
        self.apps: dict[AppId, Application] = {}
        # By application: service of ended calls, and what it was when the latest unit started.
        self._ended_s, self._since_s = np.zeros(0), np.zeros(0)
        self._open: dict[GroupId, _OpenCalls] = {}

    def observe(self, event: Event) -> None:
        """Keep the account."""
        match event:
            case AppArrived():
                self.apps[event.app] = Application(event.kind)
                self._ended_s = _grown(self._ended_s, event.app)
                self._since_s = _grown(self._since_s, event.app)
            case UnitStarted():
                self._since_s[event.app] = self._ended_s[event.app]
            case Finished() if event.request.app in self.apps:
                whole_s = event.request.prompt_tokens * self._prompt_token_s
                whole_s += event.output_tokens * self._output_token_s
                self._ended_s[event.request.app] += whole_s
                for calls in self._open.values():
                    calls.end(event.request)
            case UnitFinished():
                self._ended_s[event.app] += event.external_s
                if not event.external_s:
                    self.apps[event.app].upstream = event
            case AppFinished():
                del self.apps[event.app]

    def look(self, group: GroupId, table: RequestTable) -> None:
        """Count what these calls, which a group has, have been served so far."""
        whole_s = table.prompt_tokens * self._prompt_token_s
        whole_s = whole_s + table.generated_tokens * self._output_token_s
        served_s = np.where(table.generated_tokens > 0, whole_s, 0.0)
        self._open.setdefault(group, _OpenCalls()).look(table, served_s)

    def attained_s(self, group: GroupId, apps: Ints, *, in_unit: bool = False) -> Floats:
        """Service of each of these applications so far, as a group knows it.

        With `in_unit` since the latest unit started. Applications that never came have none.
        """
        most = int(apps.max(initial=-1))
        self._ended_s, self._since_s = _grown(self._ended_s, most), _grown(self._since_s, most)
        attained_s = self._ended_s[apps]
        if in_unit:
            attained_s = attained_s - self._since_s[apps]
        calls = self._open.get(group)
        return attained_s if calls is None else attained_s + calls.served_s(apps)


class _OpenCalls:
    """Service of the calls of a group that have not ended, by call and by application."""

    def __init__(self) -> None:
        self._of_request, self._of_app = np.zeros(0), np.zeros(0)

    def look(self, table: RequestTable, served_s: Floats) -> None:
        """Note the service of these."""
        self._of_request = _grown(self._of_request, int(table.id.max()))
        self._of_app = _grown(self._of_app, int(table.app.max()))
        np.add.at(self._of_app, table.app, served_s - self._of_request[table.id])
        self._of_request[table.id] = served_s

    def end(self, request: Request) -> None:
        """A call has ended."""
        if request.id < len(self._of_request):
            self._of_app[request.app] -= self._of_request[request.id]
            self._of_request[request.id] = 0.0

    def served_s(self, apps: Ints) -> Floats:
        """Service of each application's."""
        self._of_app = _grown(self._of_app, int(apps.max(initial=-1)))
        return self._of_app[apps]


def _grown(column: Floats, last: int) -> Floats:
    """A column with a place for number `last`."""
    if last < len(column):
        return column
    return np.concatenate([column, np.zeros(last + 1)])
