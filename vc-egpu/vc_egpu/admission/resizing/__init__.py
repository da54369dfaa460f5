"""Live resize of running pods' shares: what is known of it and does not stand on the pods."""
