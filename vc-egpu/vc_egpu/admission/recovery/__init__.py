"""Gates that fell in vain: :mod:`.aftercare`, with :mod:`.rollback`, :mod:`.rolling` and :mod:`.orphans`."""
