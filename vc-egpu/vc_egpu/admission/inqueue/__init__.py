"""Gangs whose pods nobody makes: :mod:`.enqueue`, with :mod:`.filling` and :mod:`.unheard`."""
