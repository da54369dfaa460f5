"""Several clusters on one page: what each has, and which one the user looks into."""
