"""The admission controller: decides which gangs get which cards, and carries it out. Start at :mod:`.loop`.

- the process: :mod:`.main`, :mod:`.settings`, :mod:`.leader`, :mod:`.http`, :mod:`.metrics`,
  :mod:`.operations` (what is counted), :mod:`.drain` (before removal)
- the loop's thread: :mod:`.loop`, :mod:`.collector`; it owns all state, nothing below locks
- what is there: :mod:`.sources` (watches), :mod:`.loading` (first lists), :mod:`.versions` and :mod:`.behind`
  (what is news) into :mod:`.mirror`; of that :mod:`.gangs` with :mod:`.tally`, :mod:`.inventory` with
  :mod:`.holdings` (nodes), :mod:`.surroundings` with :mod:`.budgets` and :mod:`.claimants`, :mod:`.backoffs`,
  :mod:`.answers`
- deciding: :mod:`.deciding` (the decision itself is :mod:`vc_egpu.core`), :mod:`.settled`, :mod:`.missing`
- plans become calls: :mod:`.conduct`, by what is due for a plan (:mod:`.steps`), whose gates may fall
  (:mod:`.carrying`), how room is made (:mod:`.making_room`, :mod:`.evictions`, :mod:`.owners`) and what
  failed (:mod:`.retries`); :mod:`.executor` sends :mod:`.writes` on threads
- gates that fell in vain: :mod:`.aftercare`, with :mod:`.rollback`, :mod:`.rolling`, :mod:`.orphans`
- pods that nobody makes: :mod:`.enqueue` with :mod:`.filling`, :mod:`.unheard`
- suspension: :mod:`.suspending`, :mod:`.stranded`, :mod:`.suspension_words`, :mod:`.suspension_reports`
- why a gang waits: :mod:`.reports`
"""
