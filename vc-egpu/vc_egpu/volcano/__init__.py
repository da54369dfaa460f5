"""The names and shapes of all that is read from or written to the API server. Only the client makes calls.

- :mod:`.words`: names of ours and Volcano's, and the rules of one value each: quantities, resource names,
  classes, annotations, settings.
- :mod:`.api`: Volcano's objects as typed models with exact round trips, their CRDs, and a client for Python
  programs. It needs nothing else of this project.
- :mod:`.codec`: documents of the API server into the values of a decision, and the texts that our processes
  exchange: requests, plans, orders to suspend.

Each room has a README with the place to start.
"""
