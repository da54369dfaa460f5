"""A file that passes for a built library."""

ELF = b"\x7fELF\x02\x01" + bytes(12) + (62).to_bytes(2, "little")
"""The head of one for x86-64."""
