"""The Job controller for clusters without Volcano. Start at :mod:`.machine`: what a Job needs now, pure.

- deciding, pure: :mod:`.machine` with :mod:`.policies` and :mod:`.orders` (Commands) on :mod:`.views`; what
  it finds is a :mod:`.draft`
- what a Job means and what is made of it, pure: :mod:`.defaults`, :mod:`.pods`, :mod:`.templates`,
  :mod:`.plugins`, :mod:`.gangs`, :mod:`.requests`, :mod:`.durations`
- the shell: :mod:`.main`, :mod:`.metrics`, :mod:`.controller` (watches into :mod:`.cache` and
  :mod:`.podcache`, keys of work out) and the workers :mod:`.jobworker` with :mod:`.objects`,
  :mod:`.groupworker`, :mod:`.queueworker`
"""
