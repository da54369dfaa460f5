"""What is there, as watches tell it: one picture of the cluster, owned by the loop's thread.

:mod:`.sources` (watches), :mod:`.loading` (first lists), :mod:`.versions` and :mod:`.behind` (what is news)
into :mod:`.mirror`; of that :mod:`.gangs` with :mod:`.tally` and :mod:`.ends`, :mod:`.inventory` with
:mod:`.holdings` (nodes), :mod:`.surroundings` with :mod:`.budgets` and :mod:`.claimants`, :mod:`.backoffs`,
:mod:`.answers`.
"""
