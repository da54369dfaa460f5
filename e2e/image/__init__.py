"""The product image, built without Docker: ``python -m image.build --help``.

Three layers, each cached by the hash of what goes into it: Debian with Python, the locked packages, and our
own two packages. The result is an OCI archive that any registry tool pushes and any runtime imports.
"""
