// Bytes of the agent protocol (docs/wire.md is normative). An agent's connection begins with
// kAgentMagic and u16 version; then both sides send frames: u32 length of what follows, u8 type,
// payload. FrameReader turns bytes, however they are cut, into frames; the decode functions turn
// frames into messages. Pure; the views and frames own their bytes.
#pragma once

#include "proto/agent_messages.h"
#include "proto/result.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

/// What an agent sends first: kAgentMagic and kAgentProtocolVersion.
[[nodiscard]] std::string agent_opening();

/// Appends the message's frame to `out`. Names, texts and lists are cut to their bounds.
void encode(const AgentMessage& message, std::string& out);
void encode(const ServerMessage& message, std::string& out);

struct Frame {
    std::uint8_t type = 0;
    std::string payload;
};

/// Errors: malformed (unknown type, bytes missing or left over, a value out of its range).
[[nodiscard]] Result<AgentMessage> decode_agent_message(const Frame& frame);
[[nodiscard]] Result<ServerMessage> decode_server_message(const Frame& frame);

/// "Refused" in words for a peer with another version, to be sent by the side of the rendezvous.
[[nodiscard]] Refused refused_for_version(const Error& error);

/// Incremental: push bytes, then take frames until there is none. After an error it is of no use.
class FrameReader {
public:
    enum class Start { frames, opening };

    FrameReader(Start start, std::size_t frame_bytes_max);

    void push(std::string_view bytes);

    /// The next whole frame, or none yet. Errors: malformed (no opening, empty frame),
    /// version_mismatch, limit_exceeded (a frame above `frame_bytes_max`).
    [[nodiscard]] Result<std::optional<Frame>> next();

    /// From the next frame on.
    void set_frame_bytes_max(std::size_t bytes_max) { frame_bytes_max_ = bytes_max; }

private:
    [[nodiscard]] Result<bool> take_opening();

    bool opening_taken_;
    std::size_t frame_bytes_max_;
    std::string buffer_;
    std::size_t consumed_ = 0;
};

}  // namespace ddprun
