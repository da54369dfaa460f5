"""``vc-egpu PROCESS``, the image's entry point (:mod:`.main`), and ``kubectl egpu`` (:mod:`.kubectl`)."""
