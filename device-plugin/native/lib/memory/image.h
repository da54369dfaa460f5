/* Images of device code: PTX text, ELF, bundles of both. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define EGPU_NOT_TOLD UINT64_MAX
#define EGPU_NO_END SIZE_MAX /* in memory: how long it is only the image can tell */

/* Bytes of global memory that an image declares; EGPU_NOT_TOLD where it is compressed, or of no kind that is known. */
uint64_t egpu_image(const void *image, size_t size);
uint64_t egpu_image_file(const char *path);
