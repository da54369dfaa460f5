"""``kubectl egpu right-size``: the sizes that a report proposes, written into the owners of the pods."""
