"""``vc-egpu PROCESS``, the image's entry point (:mod:`.main`), and ``kubectl egpu`` (:mod:`.kubectl`).

Each command reads (:mod:`.world`, :mod:`.doctor_facts`), makes a report of it without I/O (``*_view.py``; the
doctor's parts; :mod:`.making`, :mod:`.past` and :mod:`.trouble` help), and shows it (:mod:`.render`,
:mod:`.table`). Two change something: :mod:`.stop`, and :mod:`.pause` for ``suspend`` and ``resume``.
"""
