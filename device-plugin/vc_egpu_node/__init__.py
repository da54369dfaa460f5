"""The node agent: inventory, kubelet device plugins, exact container identity, CDI, metrics.

The process is :mod:`.main` and :mod:`.agent`; the rooms are :mod:`.cards`, :mod:`.kubelet`,
:mod:`.containers`, :mod:`.isolation` and :mod:`.suspension`. What is in them: ``device-plugin/README.md``.
"""
