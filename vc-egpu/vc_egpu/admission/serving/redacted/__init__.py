"""``GET /v1/view``: what is on cards and waits in queues, for the caller. Others are numbers, not names."""
