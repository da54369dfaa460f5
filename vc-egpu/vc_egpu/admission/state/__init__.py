"""What is there: one picture of the cluster, owned by the loop's thread. See README.md."""
