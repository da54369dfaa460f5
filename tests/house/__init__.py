"""The structure of the code, measured: ``make house`` prints it, ``tests/unit/test_house.py`` holds it."""
