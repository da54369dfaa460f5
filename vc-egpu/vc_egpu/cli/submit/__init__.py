"""``kubectl egpu submit``: one Job, sent to the cluster where it starts first."""
