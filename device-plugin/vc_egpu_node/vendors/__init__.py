"""Adapters to card vendors behind one small interface, :class:`vc_egpu_node.vendors.base.Vendor`."""
