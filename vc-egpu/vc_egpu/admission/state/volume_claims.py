"""Pods that name claims: where their volumes are says where they can go, so they are read anew with those.

Only the pods of the claim that changed: where each Job brings claims of its own, volumes come and go as often
as Jobs do.
"""

from collections.abc import Iterable

from vc_egpu.core.model.cluster import PodUid
from vc_egpu.volcano.codec.cluster_codec import Document
from vc_egpu.volcano.codec.pod_codec import claims_of

ClaimKey = tuple[str, str]
"""Namespace and name of a PersistentVolumeClaim."""


class Claimants:
    """Their documents, by claim."""

    def __init__(self) -> None:
        self._documents: dict[PodUid, Document] = {}
        self._by_claim: dict[ClaimKey, dict[PodUid, None]] = {}

    def put(self, uid: PodUid, document: Document) -> None:
        """A pod is there, or changed; the claims that it names never do."""
        claims = _claims_of(document)
        if not claims:
            return
        self._documents[uid] = document
        for claim in claims:
            self._by_claim.setdefault(claim, {})[uid] = None

    def remove(self, uid: PodUid) -> None:
        """A pod is gone."""
        document = self._documents.pop(uid, None)
        if document is None:
            return
        for claim in _claims_of(document):
            named_by = self._by_claim.get(claim, {})
            named_by.pop(uid, None)
            if not named_by:
                self._by_claim.pop(claim, None)

    def of(self, claims: Iterable[ClaimKey]) -> list[Document]:
        """The pods that name any of these claims, each once."""
        uids = dict.fromkeys(uid for claim in claims for uid in self._by_claim.get(claim, ()))
        return [self._documents[uid] for uid in uids]


def _claims_of(document: Document) -> set[ClaimKey]:
    namespace = document["metadata"]["namespace"]
    return {(namespace, claim) for claim in claims_of(document)}
