"""One part of the product on a cluster, and hands to play the rest: what e2e tests of that part stand on.

``admission``   the admission controller and simulated nodes; ``gangs`` are made by hand, ``suspender``
                answers for the nodes' agents, ``write_tap`` kills the controller at any of its writes
``jobs``        a Job controller, ours or Volcano's
``webhook``     the webhook beside an API server; ``team`` adds alice and her queue
``agent_world`` the node agent (``agent_on_node``) on a real kubelet; ``planned_pods`` are planned by hand
``suspension``  the whole stack on one node that suspends
``player``      the stories of ``manifests/examples``, on whatever stack
``api_server``  no cluster: a stand-in for the API server, for the webhook's bench and its edge

The whole product on one cluster is in :mod:`stack`.
"""
