"""What the views that are drawn as a list of entries have in common."""

from textual.widget import Widget

from rankdeck.model.job import Job
from rankdeck.ui.views.base import Scene
from rankdeck.ui.widgets.foldlist import FoldList


class Rows:
    """A view on one list; the rank and the ranks meant are those of the entry under its cursor."""

    def __init__(self, scene: Scene, table: FoldList) -> None:
        self._scene, self._table = scene, table

    @property
    def widget(self) -> Widget:
        return self._table

    @property
    def rank(self) -> int | None:
        entry = self._table.entry
        return entry.ranks[0] if entry else None

    def wanted(self) -> tuple[int, ...]:
        """The ranks of the entry under the cursor."""
        return self._table.entry.ranks if self._table.entry else ()

    def note(self, job: Job) -> str:
        del job
        return self._scene.choice.said

    def texts(self) -> tuple[list[str], str]:
        return self._table.texts(), "rows"
