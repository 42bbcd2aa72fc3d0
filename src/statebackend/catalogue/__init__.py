"""The catalogue: a derived copy of what sessions say of themselves, in one file outside the folder.

It is checked against the folder at each use, so it never changes an answer, and it can be deleted
at any time.
"""

from __future__ import annotations

from pathlib import Path

from statebackend.catalogue.file import catalogue_path, make_anew, using
from statebackend.catalogue.refresh import Progress, answer


class Catalogue:
    """The catalogue of the sessions folder *directory*, an absolute path.

    Every method connects anew, so an object may be shared by threads and outlive a fork. All raise
    :class:`StorageError` when there can be no catalogue: scan the files then.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = catalogue_path(directory)

    def refresh(self, progress: Progress | None = None) -> None:
        """Make it current, making it if need be; *progress* hears how many of how many are read."""
        using(
            self.directory,
            lambda driver: answer(driver, self.directory, lambda _current: None, progress),
        )

    def rebuild(self, progress: Progress | None = None) -> None:
        """Throw it away and make it anew from the files."""
        make_anew(self.directory)
        self.refresh(progress)
