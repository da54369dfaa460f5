"""Gangs that leave their cards for a while, and come back: :mod:`.suspending`, with :mod:`.stranded`.

What is said of them: :mod:`.words` and :mod:`.reports`.
"""
