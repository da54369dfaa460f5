"""A part of the longer stories for each commit: ``make test`` runs one slice, ten commits in a row run all.

:mod:`.durations` records how long stories take, :mod:`.plan` divides them, and :mod:`.choice` keeps the
stories of one slice.
"""
