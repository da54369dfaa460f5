"""The reports: settings and prices in, tables out. The SQL of each stands in ``vc_egpu/usage/sql``."""
