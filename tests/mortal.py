"""A vendor's slicer in an agent that dies at one moment of a slice's life."""

from vc_egpu_node.vendors.slices import HeldSlice, Slicer, SliceWish


class KilledError(BaseException):
    """The agent's process ends here."""


class Mortal:
    """A vendor's slicer, and an agent that dies at one moment around its calls."""

    def __init__(self, slicer: Slicer) -> None:
        self._slicer = slicer
        self.dies = ""

    def _reached(self, moment: str) -> None:
        if self.dies == moment:
            self.dies = ""
            raise KilledError

    def slices(self, uuid: str) -> tuple[HeldSlice, ...]:
        return self._slicer.slices(uuid)

    def make(self, wish: SliceWish) -> HeldSlice | None:
        self._reached("intended")
        made = self._slicer.make(wish)
        self._reached("made")
        return made

    def destroy(self, uuid: str, slice_id: str) -> None:
        self._reached("ended")
        self._slicer.destroy(uuid, slice_id)
        self._reached("released")
