"""``kubectl egpu pair``: off-peak pairs of a report, written into the owners of the pods, and taken back."""
