// Finds out whether a round's worker store takes connections from this node, before workers are
// started that would wait for it in vain. Everything happens on the io_context's one thread.
#pragma once

#include "proto/result.h"
#include "proto/types.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>

namespace ddprun {

class StoreProbe {
public:
    /// Connects to the numeric `address` until it answers or kReachStoreTimeout is over, then calls
    /// `done` once, from the loop. Errors: timed_out, saying address, port and what happened.
    StoreProbe(
        boost::asio::io_context& io_context,
        const std::string& address,
        Port port,
        std::function<void(Result<void>)> done
    );
    StoreProbe(const StoreProbe&) = delete;
    StoreProbe& operator=(const StoreProbe&) = delete;
    /// `done` isn't called afterwards.
    ~StoreProbe();

    class Attempts;

private:
    std::shared_ptr<Attempts> attempts_;
};

}  // namespace ddprun
