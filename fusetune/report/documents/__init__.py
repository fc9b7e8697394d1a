# SPDX-License-Identifier: GPL-2.0-or-later
"""What commands found or did: a module for each document, with its dataclass, JSON and text.

A new document is a module here; ``make docs`` writes its JSON Schema to docs/schemas.
"""

import importlib
import pkgutil
from collections.abc import Iterator

from fusetune.report.documents.base import Document


def every_document() -> Iterator[type[Document]]:
    """Yield the class of each document, without base classes."""
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for one in vars(module).values():
            here = isinstance(one, type) and one.__module__ == module.__name__
            if here and issubclass(one, Document) and "SCHEMA" in vars(one):
                yield one
