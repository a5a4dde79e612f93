#include "rendezvous/heap_trimmer.h"

#include "proto/limits.h"

#include <malloc.h>

namespace ddprun {

void HeapTrimmer::holds(std::size_t bytes, std::size_t pieces) {
    use_.holds(bytes, pieces);
    if (use_.is_due() && !is_armed_) {
        arm();
    }
}

void HeapTrimmer::arm() {
    is_armed_ = true;
    timer_.expires_after(limits::kTrimDelay);
    timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
        const auto self = weak.lock();
        if (error || self == nullptr) {
            return;
        }
        self->is_armed_ = false;
        if (self->use_.is_due()) {
            self->use_.trimmed();
#ifdef __GLIBC__
            ::malloc_trim(0);
#endif
        }
    });
}

}  // namespace ddprun
