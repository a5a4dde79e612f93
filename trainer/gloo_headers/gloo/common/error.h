// Stand-in for a header of gloo, which LibTorch is built with but does not ship.
// ProcessGroupGloo.hpp includes it and needs nothing of it.
#pragma once
