// The tests compute little: on a busy machine the threads of LibTorch's operators would only wait
// for each other.
#include <ATen/Parallel.h>

namespace {

[[maybe_unused]] const bool kOneThread = [] {
    at::set_num_threads(1);
    return true;
}();

}  // namespace
