"""Random users and random troubles on a whole cluster, for as long as one likes: ``make soak``.

After each round everything is let come to rest, and is judged: the invariants, that nothing waits which
could run, that what containers see is what was planned, and at the end that nothing of it is left.
"""
