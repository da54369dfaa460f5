"""The HTTPS webhook: completes and checks pods, Jobs, Queues and Commands at the door.

The reviews (:mod:`.pods`, :mod:`.jobs`, :mod:`.queues`, :mod:`.commands`) are pure functions of the review
request and a :class:`~.context.Context`; what they do not know they ask for (:mod:`.questions`), and the
edge (:mod:`.reviewer`, :mod:`.server`) finds the answers and asks again.
"""
