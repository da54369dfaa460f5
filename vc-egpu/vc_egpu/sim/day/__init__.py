"""A day of inference with bursts, and of training, with and without sharing of cards."""
