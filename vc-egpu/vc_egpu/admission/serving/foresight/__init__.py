"""``POST /v1/what-if``: a question, the time that it may take, and what its caller may ask and see."""
