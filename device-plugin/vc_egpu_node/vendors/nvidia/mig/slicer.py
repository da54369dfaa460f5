"""MIG instances for containers: adopted where the plan names no place, made where it does.

The mode of a card is never changed: on some cards that needs a reset, which ends all that runs there.
"""

from typing import Any, Final

from vc_egpu_node.vendors.child import CHANGE_S, Child
from vc_egpu_node.vendors.slices import HeldSlice, SliceWish

MODULE: Final = "vc_egpu_node.vendors.nvidia.mig.driver"


class MigSlicer:
    """A :class:`vc_egpu_node.vendors.slices.Slicer`. Its calls end with the child that makes them."""

    def __init__(self, child: Child, change_s: float = CHANGE_S) -> None:
        """``change_s``: how long making or removing one may take."""
        self._child = child
        self._change_s = change_s

    def slices(self, uuid: str) -> tuple[HeldSlice, ...]:
        """See :meth:`vc_egpu_node.vendors.slices.Slicer.slices`."""
        return tuple(_held(one) for one in self._child.card("slices", (uuid,)))

    def make(self, wish: SliceWish) -> HeldSlice | None:
        """Where the plan names a place, the instance is made there. Else one of the operator's is adopted."""
        if wish.start < 0:
            return None
        change = (wish.template, wish.start)
        return _held(self._child.card("make", (wish.uuid,), *change, timeout_s=self._change_s))

    def destroy(self, uuid: str, slice_id: str) -> None:
        """See :meth:`vc_egpu_node.vendors.slices.Slicer.destroy`."""
        self._child.card("destroy", (uuid,), slice_id, timeout_s=self._change_s)


def _held(told: dict[str, Any]) -> HeldSlice:
    return HeldSlice(
        id=str(told["id"]),
        template=str(told["template"]),
        start=int(told["start"]),
        memory_mib=int(told["memory_mib"]),
        numbers={str(name): int(number) for name, number in told["numbers"].items()},
        half=bool(told["half"]),
    )
