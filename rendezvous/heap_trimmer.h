// Gives memory back to the system a while after a server has let go of much: later, so that a crowd
// that leaves counts once. One thread, that of the io_context. Made by make_shared.
#pragma once

#include "rendezvous/heap_use.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <memory>

namespace ddprun {

class HeapTrimmer : public std::enable_shared_from_this<HeapTrimmer> {
public:
    explicit HeapTrimmer(boost::asio::io_context& io_context) : timer_(io_context) {}

    /// What is held now, as HeapUse has it.
    void holds(std::size_t bytes, std::size_t pieces);

    /// Nothing of it keeps the loop from running out of work.
    void close() { timer_.cancel(); }

private:
    void arm();

    boost::asio::steady_timer timer_;
    HeapUse use_;
    bool is_armed_ = false;
};

}  // namespace ddprun
