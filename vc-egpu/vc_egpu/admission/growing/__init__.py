"""How many nodes should come for gangs that wait for cards: one ProvisioningRequest for each model."""
