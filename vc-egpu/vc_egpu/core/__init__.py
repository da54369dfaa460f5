"""The decisions, pure: no clock, no I/O, no Kubernetes.

Start at :mod:`.decide`, then :mod:`.admit`: the steps for one gang.

- values in: :mod:`.model.cluster` (nodes, cards, pods, gangs, queues), fed one at a time into
  :mod:`.books.state`
- values out: :mod:`.model.plan`
- what fits: :mod:`.books.capacity` and :mod:`.books.ledger` (on a card), :mod:`.books.fit` (on a node)
- queues: :mod:`.queues.order` (which gang is next), :mod:`.queues.caps` (what its queue allows),
  :mod:`.queues.deserved` (what it may take back)
- places: :mod:`.placing.place` with :mod:`.placing.policies`
- room: :mod:`.room.preempt` with :mod:`.room.causes`, :mod:`.room.reclaim`, :mod:`.room.victims` and
  :mod:`.room.reduce`
- gangs that are not there: :mod:`.standing.plans_in_force`, :mod:`.standing.replacements`,
  :mod:`.standing.standby`, :mod:`.standing.suspend`
- words for users: :mod:`.waiting.say`

:mod:`.check.invariants` judges any state from the outside and shares nothing with the rest.
"""
