"""Closed forms of queues with Poisson arrivals and a mean service time of one second.

`load` is the share of its capacity that a queue uses (rho), so the arrival rate per server.
"""

import numpy as np


def pollaczek_khinchine_wait_s(load: float, second_moment_s2: float) -> float:
    """Mean wait in M/G/1, first come first served: lambda E[S^2] / (2 (1 - rho)).

    Kleinrock, Queueing Systems vol. 1, ch. 5; M/M/1 and M/D/1 are special cases.
    """
    return load * second_moment_s2 / (2 * (1 - load))


def erlang_c(max_num_seqs: int, load: float) -> float:
    """Probability of waiting in M/M/k, by the recursion of Erlang's loss formula.

    Kleinrock, Queueing Systems vol. 1, ch. 3 (Erlang's B and C formulas).
    """
    offered, blocked = max_num_seqs * load, 1.0
    for seat in range(1, max_num_seqs + 1):
        blocked = offered * blocked / (seat + offered * blocked)
    return blocked / (1 - load * (1 - blocked))


def multi_server_response_s(max_num_seqs: int, load: float) -> float:
    """Mean response time of M/M/k: E[S] + C(k, rho) / (k (1 - rho))."""
    return 1.0 + erlang_c(max_num_seqs, load) / (max_num_seqs * (1 - load))


def processor_sharing_response_s(load: float) -> float:
    """Mean response time of M/G/1 under processor sharing: E[S] / (1 - rho), whatever the law.

    Kleinrock, Queueing Systems vol. 2, ch. 4.
    """
    return 1.0 / (1 - load)


def shortest_remaining_response_s(load: float, *, panels: int = 400) -> float:
    """Mean response time of M/M/1 under shortest remaining processing time.

    Schrage and Miller, The queue M/G/1 with the shortest remaining processing time discipline,
    1966; as in Wierman, Scheduling for Today's Computer Systems, 2007. For a size x, with
    r(x) = lambda int_0^x t f(t) dt and m(x) = int_0^x t^2 f(t) dt,

        T(x) = int_0^x dt / (1 - r(t)) + lambda (m(x) + x^2 (1 - F(x))) / (2 (1 - r(x))^2).

    Averaged over x, the first integral becomes int (1 - F(t)) / (1 - r(t)) dt. Gauss-Legendre
    quadrature of eight points on `panels` panels up to 60 mean sizes.
    """
    points, weights = np.polynomial.legendre.leggauss(8)
    half = 60.0 / panels / 2
    x = (half * (2 * np.arange(panels)[:, None] + 1 + points)).ravel()
    tail = np.exp(-x)
    idle = 1 - load * (1 - tail * (1 + x))
    second = 2 - tail * (2 + 2 * x + x**2)
    residence = tail / idle
    wait = tail * load * (second + x**2 * tail) / (2 * idle**2)
    return float(half * (np.tile(weights, panels) * (residence + wait)).sum())
