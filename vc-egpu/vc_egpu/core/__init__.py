"""The decisions, pure: no clock, no I/O, no Kubernetes.

Start at :mod:`vc_egpu.core.decide`, then :mod:`.admit`: the numbered steps. Values in: :mod:`.cluster`
(nodes, cards, pods, gangs, queues), fed one at a time into :mod:`.state`. Values out: :mod:`.plan`.
Rules: :mod:`.capacity` and :mod:`.ledger` (what fits on a card), :mod:`.fit` (on a node), :mod:`.caps`,
:mod:`.order`, :mod:`.place`, :mod:`.preempt` with :mod:`.causes`, :mod:`.victims` and :mod:`.reduce`,
:mod:`.plans_in_force`, :mod:`.replacements`, :mod:`.suspend`. :mod:`.invariants` judges any state from the
outside and shares nothing with the rest.
"""
