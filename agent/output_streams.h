// What an OutputPump keeps of each worker. Internal to the pump.
#pragma once

#include "agent/line_filter.h"
#include "agent/line_splitter.h"
#include "agent/log_files.h"
#include "agent/output_pump.h"
#include "agent/worker_streams.h"
#include "proto/limits.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

namespace ddprun {

struct OutputPump::Stream {
    Stream(
        boost::asio::io_context& io_context,
        StreamKind kind_,
        const WorkerStreams& streams,
        ConsoleLine& console
    )
        : kind(kind_),
          pipe(io_context),
          splitter(streams.mode, streams.prefix, console),
          filter(streams.of(kind_).filters, streams.prefix),
          shown(streams.of(kind_).shown) {}

    StreamKind kind;
    boost::asio::posix::stream_descriptor pipe;
    LineSplitter splitter;
    LineFilter filter;
    bool shown;
    LogFiles::Handle file;      ///< of its bytes, or null
    LogFiles::Handle filtered;  ///< of the lines that its filter lets through, or null
    bool paused = false;
    bool resting = false;   ///< waits for look_at_resting()
    bool enlarged = false;  ///< its pipe
    /// A read of less doesn't fill what it is read from soon.
    std::size_t small_bytes = limits::kSmallOutputBytes;
    std::string tail;
};

struct OutputPump::Worker {
    std::unique_ptr<Stream> streams[2];
    std::optional<TimePoint> read_until;  ///< set when it has ended

    [[nodiscard]] bool open() const {
        return streams[0]->pipe.is_open() || streams[1]->pipe.is_open();
    }

    /// A pipe of it isn't read, because what it holds can't be put anywhere yet.
    [[nodiscard]] bool paused() const {
        return std::any_of(std::begin(streams), std::end(streams), [](const auto& stream) {
            return stream->paused && stream->pipe.is_open();
        });
    }
};

}  // namespace ddprun
