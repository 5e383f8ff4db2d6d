"""Hermes: applications by the Gittins rank of the demand that they have left, or by slack.

Paper      Liu et al., Efficient Serving of LLM Applications with Probabilistic Demand Modeling,
           arXiv 2506.14851; sections below are its sections.
Idea       Recorded runs say how much service an application of a kind may need. When a unit of it
           starts, what is known of that unit and the one before narrows this. The application with
           the lowest Gittins rank for the service it has attained runs first; with deadlines, the
           one with the least slack in the worst case.
Map        3.2 PDGraph, walks, refinement  -> systems/hermes/pdgraph.py; `graphs`
           3.3 eq. 1, eq. 2                -> systems/hermes/rank.py; `objective`
           3.3 refresh per bucket          -> `Demand`, asked again on events and every `renew_s`
Constants  1,000 samples and walks, 10 buckets, correlation 0.5 (sections 3.2, 5.1). The paper does
           not state seconds per token (its program: 1e-4 and 0.06), `renew_s`, `displaces` and the
           batch rule: see scenarios/policy/hermes_gittins.yaml
Differs    graphs come from the history alone, not from what is observed during the run. Service of
           parallel calls is summed up, as in its program. Of units side by side, the latest to
           start says what is left. `program` ranks as branch SC25 of its program does: by its
           formula and the recorded totals, without refinement; `stage` as branch ATC25: Gittins of
           the unit that runs plus the mean of what comes after it (there for answers alone, and
           refined by Bayesian networks). `risk` is the rule of ATC25 with deadlines; its worst case
           is the recorded run of the longest path, of which units that have ended are taken away.
           Without a deadline an application comes behind those that have one, by Gittins rank; by
           eq. 2 applications past their deadline come first, by `risk` behind.
           `oracle` ranks by the true demand left, which a predictor tells (section 5.3)
Checked    systems/tests/test_hermes_policy.py
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.entities import AppId, GroupId
from harness.interface.events import AppArrived, AppFinished, Event, UnitFinished, UnitStarted
from harness.interface.policies import Capability
from harness.interface.tables import Floats, Ints, RequestTable
from harness.interface.views import GroupView
from harness.planning.application_history import ApplicationHistory, UnitRun
from harness.planning.attained import OBSERVED, Attained
from systems.hermes.pdgraph import NO_UPSTREAM, GraphSettings, PdGraph, graph_of, upstream_of
from systems.hermes.rank import BEHIND, Demand, Demands, risk_key

_OBJECTIVES = ("gittins", "stage", "program", "mean", "slack", "risk", "oracle")


class Hermes:
    """Scheduling policy: a priority order of applications."""

    requires: frozenset[Capability]
    subscribes: ClassVar[frozenset[type[Event]]] = OBSERVED

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        objective: str,
        graphs: GraphSettings,
        displaces: str | None,
        renew_s: float | None,
        applications: ApplicationHistory | None = None,
    ) -> None:
        """Rank by `objective`: gittins, stage, program, mean, slack, risk or oracle.

        `displaces`: pause, recompute, swap, or None, where the order is one of admission. Keys are
        asked again every `renew_s`; None: on events alone. ValueError for another word.
        """
        if objective not in _OBJECTIVES:
            raise ValueError(
                f"policy.objective is {objective}, not one of {', '.join(_OBJECTIVES)}"
            )
        self._objective, self._settings, self._now_s = objective, graphs, 0.0
        self._refines = graphs.refines and objective not in ("program", "oracle")
        how = None if displaces is None else Displaced(displaces)
        needs = {Capability.SWAP: how is Displaced.SWAP}
        needs[Capability.PREDICTIONS] = objective == "oracle"
        self.requires = frozenset(
            capability for capability, is_needed in needs.items() if is_needed
        )
        self._attained = Attained(
            prompt_token_s=graphs.prompt_token_s, output_token_s=graphs.output_token_s
        )
        runs = {} if applications is None else applications.runs
        self._graphs = {kind: graph_of(tuple(map(tuple, runs[kind])), graphs) for kind in runs}
        self._whole = {kind: self._demand(graph) for kind, graph in self._graphs.items()}
        self._worst_path_s = {
            kind: max(sum(map(self._longest_call_s, run)) for run in runs[kind]) for kind in runs
        }
        self._path_left_s: dict[AppId, float] = {}
        self._left = Demands(buckets=graphs.buckets, is_program=objective == "program")
        self._order = PriorityOrder(None, rule, how, renews=True, renew_s=renew_s)
        self._decisions: dict[GroupId, Decision] = {}

    def observe(self, event: Event) -> None:
        """Estimate what an application has left when a unit of it starts.

        Raises ValueError for a kind of application without recorded runs, and for an oracle that
        is not told what applications demand.
        """
        self._attained.observe(event)
        self._now_s = event.now_s
        if isinstance(event, AppArrived):
            self._left.add(event.app, event.deadline_s)
            self._left.set(event.app, self._demand_of(event))
            self._path_left_s[event.app] = self._worst_path_s.get(event.kind, 0.0)
        elif isinstance(event, UnitFinished):
            self._path_left_s[event.app] -= self._longest_call_s(event)
        elif isinstance(event, UnitStarted) and self._refines:
            app = self._attained.apps[event.app]
            upstream = NO_UPSTREAM
            if app.upstream is not None:
                upstream = upstream_of(app.upstream.prompt_tokens, app.upstream.output_tokens)
            own_s, rest_s = self._graphs[app.kind].left_s(event.unit, event.prompt_tokens, upstream)
            is_stage = self._objective == "stage"
            samples_s = own_s if is_stage else own_s + rest_s
            later_s = float(rest_s.mean()) if is_stage else 0.0
            demand = Demand(samples_s, buckets=self._settings.buckets, later_s=later_s)
            self._left.set(event.app, demand)
        elif isinstance(event, AppFinished):
            self._left.remove(event.app)
            del self._path_left_s[event.app]

    def schedule(self, view: GroupView) -> Decision:
        """The priority order of each group, which stands."""
        group = view.group.id
        if group not in self._decisions:
            order = replace(self._order, key=partial(self._key, group))
            self._decisions[group] = Decision(priority_order=order)
        return self._decisions[group]

    def _demand_of(self, event: AppArrived) -> Demand:
        """Of a whole application, which arrives."""
        if self._objective != "oracle":
            if event.kind not in self._graphs:
                raise ValueError(f"applications of kind {event.kind} have no recorded run")
            return self._whole[event.kind]
        if event.predicted is None:
            raise ValueError(
                "policy.objective is oracle and no predictor says what applications demand; "
                "predictor=application_oracle does"
            )
        prompts_s = event.predicted.prompt_tokens * self._settings.prompt_token_s
        outputs_s = event.predicted.output_tokens * self._settings.output_token_s
        total_s = prompts_s + outputs_s + event.predicted.external_s
        return Demand(np.array([total_s]), buckets=self._settings.buckets)

    def _demand(self, graph: PdGraph) -> Demand:
        """Of a whole application, by recorded runs."""
        is_program = self._objective == "program"
        samples_s = graph.recorded_s if is_program else graph.whole_s
        return Demand(samples_s, buckets=self._settings.buckets, is_program=is_program)

    def _longest_call_s(self, unit: UnitRun | UnitFinished) -> float:
        """Service of a unit on the path to the end: of its longest call, or outside any LLM."""
        calls = zip(unit.prompt_tokens, unit.output_tokens, strict=True)
        prompt_s, output_s = self._settings.prompt_token_s, self._settings.output_token_s
        longest_s = max((p * prompt_s + o * output_s for p, o in calls), default=0.0)
        return longest_s + unit.external_s

    def _key(self, group: GroupId, table: RequestTable) -> Floats:
        """The rank of each request's application; requests of none are ordered by arrival."""
        self._attained.look(group, table)
        attained_s = self._attained.attained_s(group, table.app, in_unit=self._refines)
        self._left.cover(int(table.app.max()))
        key = self._ranks(table.app, attained_s)
        return np.where(np.isnan(key), table.arrival_s, key)

    def _ranks(self, apps: Ints, attained_s: Floats) -> Floats:
        left = self._left
        if self._objective in ("mean", "oracle"):
            return left.mean_left_s(apps, attained_s)
        ranks = left.gittins(apps, attained_s)
        if self._objective in ("gittins", "stage", "program"):
            return ranks
        deadline_s = left.deadline_s(apps)
        if self._objective == "risk":
            path_left_s = np.array([self._path_left_s.get(app, 0.0) for app in apps.tolist()])
            until_s = np.nan_to_num(deadline_s - self._now_s, nan=np.inf)
            return risk_key(ranks, path_left_s, until_s)
        slack_s = left.slack_s(apps, attained_s)
        return np.where(np.isnan(deadline_s), BEHIND + ranks, slack_s)
