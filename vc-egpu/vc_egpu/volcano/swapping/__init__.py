"""What node agents say of pods that take their cards in turns."""
