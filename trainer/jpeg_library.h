// libjpeg-turbo's header, after what it needs but doesn't include itself.
#pragma once

#include <stddef.h>
#include <stdio.h>

// A group of its own, which the formatter leaves where it is.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
