"""The names and shapes of all that is read from or written to the API server. No calls but in :mod:`.client`.

- names: :mod:`.names` (every one of ours, once), :mod:`.resource_names`, :mod:`.knobs`
- typed objects, exact round trips: :mod:`.meta`, :mod:`.job`, :mod:`.podgroup`, :mod:`.queue`,
  :mod:`.command`; CRDs from them: :mod:`.crds`; a client for Python programs: :mod:`.client`
- documents into the decision's values: :mod:`.codec`, :mod:`.pod_codec` with :mod:`.pod_status`,
  :mod:`.share_codec`, :mod:`.codec_resources`, :mod:`.quantity`; what of them stays in memory: :mod:`.kept`
- annotations that our processes exchange: :mod:`.annotations`, :mod:`.request`, :mod:`.plans`,
  :mod:`.suspension`
- rules that several processes share: :mod:`.priority`, :mod:`.payer`, :mod:`.makers`, :mod:`.others`,
  :mod:`.wishes`
- settings: :mod:`.model_table`, :mod:`.node_policy`, by :mod:`.yaml_text`
"""
