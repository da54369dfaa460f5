"""The decisions, pure: no clock, no I/O, no Kubernetes.

Start at :mod:`vc_egpu.core.decide`. Values in: :mod:`.cluster` (nodes, cards, pods, gangs, queues).
Values out: :mod:`.plan`. Rules: :mod:`.ledger` (what fits on a card), :mod:`.caps`, :mod:`.place`,
:mod:`.preempt`, :mod:`.order`. :mod:`.invariants` judges any state from the outside.
"""
