"""Our stack on a local cluster, for the demo and the e2e tests.

``kit``        waits for what the API server tells (no sleeps), applies YAML, shows logs of what failed
``fakes``      the fake GPUs of each real node, and simulated nodes with an inventory
``install``    the manifests and our image, as an operator would apply them
``hostmode``   the same processes beside the cluster, for benches and crash tests: with their own identities
``webhook``    whether it is asked, and a while without it
``removal``    as an operator removes it, and what is left then
``trouble``    why pods are not ready, for a test that gives up
``verify``     the invariants of the design, from the API objects and from what containers report
"""
