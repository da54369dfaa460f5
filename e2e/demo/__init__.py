"""``make demo``: the main job on a real cluster, told step by step and checked as it is told."""
