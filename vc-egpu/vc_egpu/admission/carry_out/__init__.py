"""From decisions to operations: what is begun, what is under way, what comes of it.

Start at :mod:`.conductor`. It has what is under way (:mod:`.work`), and below it one module for each noun:
:mod:`.plans`, :mod:`.members`, :mod:`.victims`.
"""
