"""Plans become calls.

:mod:`.conduct`, by what is due for a plan (:mod:`.steps`), whose gates may fall (:mod:`.carrying`), how
room is made (:mod:`.making_room`, :mod:`.evictions`, :mod:`.owners`) and what failed (:mod:`.retries`);
:mod:`.executor` sends :mod:`.writes` on threads.
"""
