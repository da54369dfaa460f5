"""What the images on this node say of themselves, as the container runtime knows it (CRI).

The runtime is asked for what it has. It fetches nothing for it, and no registry is asked.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
from vc_egpu.volcano.needs.archive import Image

from vc_egpu_node.kubelet_api import cri_pb2, cri_pb2_grpc

TIMEOUT_S: Final = 10.0
MOST_IMAGES: Final = 1000
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
_INFO: Final = "info"
"""Under this name containerd and CRI-O give the image's own configuration, as JSON."""


class ImagesError(RuntimeError):
    """The runtime does not answer; the text says why."""


def images_on(socket: Path) -> tuple[Image, ...]:
    """All images that have a name, once for each name, in the order of names. Raises :class:`ImagesError`."""
    options = (("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),)
    with grpc.insecure_channel(f"unix://{socket}", options=options) as channel:
        try:
            return tuple(sorted(_images(cri_pb2_grpc.ImageServiceStub(channel)), key=lambda one: one.name))
        except grpc.RpcError as error:
            raise ImagesError(f"{socket}: {error.code().name}: {error.details()}") from error


def _images(runtime: Any) -> Iterator[Image]:
    listed = runtime.ListImages(cri_pb2.ListImagesRequest(), timeout=TIMEOUT_S).images
    for one in list(listed)[:MOST_IMAGES]:
        if not one.repo_tags:
            continue
        asked = cri_pb2.ImageStatusRequest(image=cri_pb2.ImageSpec(image=one.id), verbose=True)
        info = runtime.ImageStatus(asked, timeout=TIMEOUT_S).info
        environment = environment_in(info.get(_INFO, ""))
        yield from (Image(name, environment) for name in one.repo_tags)


def environment_in(text: str) -> dict[str, str]:
    """The variables in what the runtime tells of an image; none where it tells no configuration."""
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    found: object = document
    for key in ("imageSpec", "config", "Env"):
        found = found.get(key) if isinstance(found, dict) else None
    pairs = (str(entry).partition("=") for entry in (found if isinstance(found, list) else ()))
    return {key: value for key, _, value in pairs if key}
