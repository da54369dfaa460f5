"""The admission controller: decides which gangs get which cards, and carries it out. Start at :mod:`.loop`.

- the process: :mod:`.main`, :mod:`.settings`, :mod:`.leader`, :mod:`.http`, :mod:`.metrics`,
  :mod:`.operations` (what is counted), :mod:`.drain` (before removal)
- the loop's thread: :mod:`.loop`, :mod:`.collector`; it owns all state, nothing below locks
- :mod:`.state`: what is there
- deciding: :mod:`.deciding` (the decision itself is :mod:`vc_egpu.core`), :mod:`.settled`, :mod:`.missing`
- :mod:`.execution`: plans become calls
- :mod:`.recovery`: gates that fell in vain
- :mod:`.inqueue`: pods that nobody makes
- :mod:`.suspension`: gangs that leave their cards for a while
- why a gang waits: :mod:`.reports`
"""
