"""Pods that leave their cards for a while. Start at :mod:`.suspender`."""
