"""How the network of a cluster is described, and how near members of a gang have to be. See README.md."""
