// Every bound on lengths, counts, queues, buffers and retries, with the reason where it isn't
// obvious.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ddprun::limits {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;

// The store. The first three are what PyTorch's libuv server allows, so that no legal client
// breaks.
inline constexpr std::size_t kKeyBytesMax = 8 * kKiB;
inline constexpr std::size_t kValueBytesMax = 8 * kMiB;
inline constexpr std::size_t kKeysPerRequestMax = 131'072;
inline constexpr std::size_t kRequestBytesMax = 64 * kMiB;
inline constexpr std::size_t kPartialBytesMax =
    1 * kKiB * kMiB;  ///< of the requests of all clients that aren't whole yet
inline constexpr std::size_t kListedBytesMax = 256 * kMiB;  ///< of the reply to LIST_KEYS
inline constexpr std::size_t kStoreKeysMax = 16'777'216;
inline constexpr std::size_t kStoreBytesMax = 8 * kKiB * kMiB;  ///< of all keys and values
inline constexpr std::size_t kQueueLengthMax = 1'048'576;       ///< of one queue
inline constexpr std::size_t kRegistrationsMax = 128 * kMiB;    ///< keys waited for by all clients
inline constexpr std::size_t kStoreConnectionsMax = 131'072;
inline constexpr std::size_t kUnvalidatedConnectionsMax = 16'384;
inline constexpr std::size_t kReadChunkBytes =
    256 * kKiB;  ///< of the one read buffer of a server: values that fit are copied once
inline constexpr std::size_t kUnsentBytesMax = 8 * kMiB;  ///< above it a client isn't read from
inline constexpr std::size_t kTrimBytesMin =
    1 * kMiB;  ///< freed since the most that was held, before it goes back to the system
inline constexpr std::size_t kTrimPiecesMax =
    200'000;  ///< allocations that live: looking at as many free ones takes 13 ms
inline constexpr std::chrono::milliseconds kTrimDelay{250};  ///< for more to be freed with it
inline constexpr int kAcceptsPerTurnMax = 64;  ///< before other clients have their turn
inline constexpr std::chrono::minutes kForeignRunTimeout{
    10};  ///< after its last connection the keys of a foreign torchrun go
inline constexpr std::size_t kForeignUsesMax =
    1'048'576;  ///< pairs of a connection and a foreign run that are remembered
inline constexpr std::size_t kKeysRemovedPerTurnMax = 4'096;  ///< of those that are due
inline constexpr std::size_t kRequestsPerTurnMax =
    4'096;  ///< of one client: more are answered after the others
inline constexpr std::size_t kReplyBytesPerTurnMax =
    1 * kMiB;  ///< after which one client's further requests wait for their next turn
inline constexpr std::chrono::seconds kHandshakeTimeout{10};
/// Lines of the log for connections that were closed, in so much time; the log level debug has all.
inline constexpr std::size_t kClosedLinesMax = 20;
inline constexpr std::chrono::milliseconds kClosedLinesTime{1'000};
inline constexpr std::chrono::seconds kProgressTimeout{60};  ///< partial request, unread reply
inline constexpr int kProgressLooks =
    4;  ///< within kProgressTimeout, at whether the kernel still passes on what a client reads
inline constexpr std::chrono::minutes kRequestTimeout{10};  ///< for a request as a whole
inline constexpr std::chrono::milliseconds kStoreStopTimeout{
    2'000};  ///< to write what is due before a store closes
inline constexpr std::size_t kIdleConnectionsMax = 8;  ///< that a store client keeps
inline constexpr std::chrono::milliseconds kCancelTimeout{
    100};  ///< for the server to confirm that a wait has been taken back: the most by which a wait
           ///< outlasts its time-out
inline constexpr std::size_t kKeyBytesShownMax = 128;  ///< of one key, in an error

// The command line.
inline constexpr int kSecondsMax =
    31'536'000;  ///< a year: the longest time-out that can be asked for

// The agent protocol.
inline constexpr std::size_t kAgentFrameBytesMax = 4 * kMiB;
inline constexpr std::size_t kNameBytesMax =
    1 * kKiB;  ///< host, node, job and role names, addresses
inline constexpr std::size_t kTextBytesMax =
    64 * kKiB;  ///< a message, a traceback, the last lines of stderr
inline constexpr std::int32_t kNodesMax = 131'072;
inline constexpr std::int32_t kLocalWorldSizeMax = 4'096;
inline constexpr std::int32_t kFailuresPerReportMax =
    64;  ///< a job's report lists no more, and counts the rest
inline constexpr std::size_t kListedTextBytesMax =
    8 * kKiB;  ///< a text of a failure that isn't the first of its list: a full list fits a frame
inline constexpr std::size_t kServerFrameBytesMax =
    64 * kMiB;  ///< to an agent, which trusts its rendezvous: the plan of kNodesMax nodes
inline constexpr std::size_t kJoinFrameBytesMax =
    16 * kKiB;  ///< the first frame, before its sender is known
inline constexpr std::int32_t kWaitingNamesMax = 64;
inline constexpr std::size_t kNoRestartCodesMax = 255;  ///< every status but 0
inline constexpr std::size_t kStoppedWorkersMax =
    4'096;  ///< that a report lists: all of a node, the first of a job

// The membership of a job.
inline constexpr std::int32_t kJobsMax = 4'096;  ///< of one rendezvous
inline constexpr std::size_t kReplacedMax = 64;  ///< former lives that a job remembers
inline constexpr std::int64_t kRoundMax = 1LL << 48;
inline constexpr std::size_t kRefusalsKeptMax = 8;  ///< that a join time-out lists
inline constexpr std::chrono::milliseconds kTimeoutMax{1'000LL * 86'400 * 365};
inline constexpr std::chrono::milliseconds kHeartbeatIntervalMin{10};
inline constexpr std::int32_t kHeartbeatMissesMax = 1'000;
inline constexpr std::chrono::milliseconds kStoreReadyTimeout{
    60'000};  ///< for group rank 0 to bind the worker store
inline constexpr std::chrono::milliseconds kRebuildTimeout{
    10'000};  ///< for the nodes of a round to come back to a restarted rendezvous
inline constexpr std::chrono::milliseconds kShortRound{
    60'000};  ///< a round that lived less counts against membership_rounds_max
inline constexpr std::chrono::milliseconds kRestartDelayMax{
    300'000};  ///< to which a delay grows by doubling; a longer one that was asked for stays
inline constexpr std::int32_t kEarlyRestartsMax =
    3;  ///< in a row after failures sooner than min_uptime
inline constexpr std::chrono::milliseconds kWaitingDelay{
    100};  ///< changes within it are told at once; longer where there are many to tell
inline constexpr std::chrono::milliseconds kWaitingDelayMax{1'500};
inline constexpr std::chrono::milliseconds kWaitingInterval{10'000};
inline constexpr std::chrono::milliseconds kResumeGrace{
    20};  ///< for a closed connection to come back before its node counts as lost

// Connections of agents.
inline constexpr std::size_t kAgentReadBytes = 16 * kKiB;  ///< at a time
inline constexpr std::size_t kAgentOutputBytesMax =
    2 * kServerFrameBytesMax;  ///< queued for one agent that doesn't read
/// After a join for a place that is taken, until words of its present agent count as a sign of
/// life.
inline constexpr std::chrono::milliseconds kHeldJoinMin{100};
inline constexpr std::size_t kUnjoinedConnectionsMax = 4'096;
inline constexpr std::chrono::milliseconds kJoinMessageTimeout{
    10'000};  ///< from accept to a whole Join
inline constexpr std::chrono::milliseconds kLinkDoubtMin{
    100};  ///< without an answer before an agent takes its connection for dead
inline constexpr std::chrono::milliseconds kConnectBackoffMin{10};
inline constexpr std::chrono::milliseconds kConnectBackoffMax{1'000};
inline constexpr std::chrono::milliseconds kConnectAttemptTimeout{5'000};
inline constexpr std::chrono::milliseconds kConnectTellingDelay{
    1'500};  ///< before it is told what keeps a link down
inline constexpr std::chrono::milliseconds kConnectTellingInterval{10'000};
inline constexpr std::chrono::milliseconds kLinkCloseTimeout{
    2'000};  ///< to send what is queued before a close

// The agent.
inline constexpr std::int32_t kCpusMax = 65'536;  ///< numbers of CPUs and of NUMA nodes
inline constexpr std::chrono::milliseconds kReachStoreTimeout{
    10'000};  ///< for another node's worker store to answer
inline constexpr std::chrono::milliseconds kReachStorePause{100};  ///< between two attempts
inline constexpr std::size_t kHeldSignalsMax =
    64;  ///< forwarded signals before workers have started
inline constexpr std::size_t kUnacknowledgedMax =
    1'024;  ///< reports of one agent; a round makes four
inline constexpr std::size_t kLineBytesMax =
    1 * kMiB;  ///< a longer line of a worker is forwarded in pieces
inline constexpr std::size_t kOutputChunkBytes = 256 * kKiB;  ///< one read of a worker's pipe
inline constexpr std::size_t kPipeBytes = 64 * kKiB;  ///< that a pipe holds unless asked for more
inline constexpr std::size_t kBusyPipeBytes = 256 * kKiB;  ///< asked for once it was full
inline constexpr std::size_t kSmallOutputBytes =
    4 * kKiB;  ///< a read of less doesn't fill a pipe soon
inline constexpr std::size_t kSmallTerminalBytes =
    1 * kKiB;  ///< the same for a pseudo-terminal, which holds 4 KiB
inline constexpr std::chrono::milliseconds kOutputRest{
    2};  ///< pipes in quick succession are looked at together
inline constexpr std::size_t kOutputQueueBytesMax =
    1 * kMiB;  ///< per stream; above it the workers' pipes are not read
inline constexpr std::size_t kLogQueueBytesMax =
    1 * kMiB;  ///< per log file; above it the worker's pipe is not read
inline constexpr std::size_t kLogBytesQueuedMax = 16 * kMiB;  ///< for all log files
inline constexpr int kRotatedLogsMax = 4;  ///< older parts of a log file that are kept
inline constexpr std::size_t kStderrTailBytesMax = 8 * kKiB;  ///< kept per worker for the report
inline constexpr std::size_t kErrorFileBytesMax = 1 * kMiB;
inline constexpr std::size_t kReportLinesMax = 25;
inline constexpr std::chrono::milliseconds kPartialLineSilence{200};
inline constexpr std::chrono::milliseconds kDrainAfterEnd{
    1'000};  ///< for a grandchild that holds a worker's pipe
inline constexpr std::chrono::milliseconds kSlowReaderAtEnd{2'000};
inline constexpr std::chrono::milliseconds kLogFlushAtEnd{
    2'000};  ///< for a disk to take what is queued for log files
inline constexpr std::chrono::milliseconds kGiveUpAfterStop{
    10'000};  ///< for EndJob after a stop signal, besides the grace time
inline constexpr std::chrono::milliseconds kGiveUpAfterKill{1'000};  ///< after a second INT
inline constexpr std::chrono::milliseconds kSweepTimeMax{
    2'000};  ///< what lives on after SIGKILL for longer is named and left
inline constexpr std::chrono::milliseconds kKillTimeMax{
    10'000};  ///< a worker that lives on after SIGKILL for longer hangs in the kernel
inline constexpr std::size_t kKernelTextBytesMax = 256;    ///< of a wait channel, for a message
inline constexpr std::size_t kReportRoundsMax = 10'000;    ///< of --report; the newest are kept
inline constexpr std::size_t kPassedDescriptorsMax = 256;  ///< of --pass_fds
inline constexpr std::size_t kTerminalQueueBytesMax =
    64 * kKiB;  ///< from the user's terminal to a worker's; above it the terminal is not read
inline constexpr std::size_t kKernelLogBytesMax =
    256 * kKiB;  ///< its end, in which out-of-memory kills are looked for
inline constexpr std::size_t kKernelFileBytesMax =
    16 * kMiB;  ///< of /proc and /sys; the table of all sockets is the longest
inline constexpr int kCgroupRemoveTries = 20;  ///< kSweepInterval apart
inline constexpr std::chrono::milliseconds kSweepInterval{5};
inline constexpr std::chrono::milliseconds kReapDelay{20};  ///< orphans are reaped together

// The trainer.
inline constexpr std::int64_t kSamplesMax =
    214'748'363;  ///< of a data set: up to here torch's randperm draws 32 bits a step
inline constexpr std::int64_t kBatchSizeMax = 65'536;
inline constexpr std::int64_t kClassesMax = 1'000'000;
inline constexpr int kImageSizeMax = 4'096;
inline constexpr int kLoaderThreadsMax = 256;
inline constexpr std::int64_t kBatchesAhead = 2;         ///< at least, while the loop uses one
inline constexpr std::int64_t kPicturesAhead = 4;        ///< at least, for each loader thread
inline constexpr std::int64_t kPicturesClaimedMax = 16;  ///< by a loader thread at a time
inline constexpr std::int64_t kBadSamplesMax = 1'000'000;
inline constexpr std::uint64_t kPicturePixelsMax = 1ULL << 27;
inline constexpr std::size_t kPictureFileBytesMax = 256 * kMiB;
inline constexpr int kPictureSideMax = 65'535;               ///< of a packed picture, as of a JPEG
inline constexpr int kJpegScansMax = 500;                    ///< encoders make about ten
inline constexpr std::size_t kScratchBytesKept = 64 * kMiB;  ///< of a loader thread, for the next
inline constexpr int kFolderDepthMax = 64;                   ///< below a class of an image folder
inline constexpr std::size_t kClassNameBytesMax = 1 * kKiB;
inline constexpr std::size_t kPackChunk = 32;  ///< pictures that a thread of `pack` has in memory
inline constexpr std::int64_t kStepsMax = 1'000'000'000'000;
inline constexpr int kCheckpointsKeptMax = 1'000'000;
inline constexpr std::size_t kPickleBytesMax = 64 * kMiB;  ///< data.pkl: names and shapes only
inline constexpr int kPickleDepthMax = 100;
inline constexpr std::size_t kPickleMemoMax = 1'000'000;
inline constexpr std::size_t kKeysListedMax = 8;  ///< of missing or unexpected ones, in an error
inline constexpr std::int64_t kAccumulationMax = 65'536;  ///< batches of one step
inline constexpr std::int64_t kProfiledStepsMax = 1'000;
inline constexpr int kSpawnedMax = 256;
inline constexpr int kReplicasMax = 64;
inline constexpr std::int64_t kPowerSgdRankMax = 1'024;
inline constexpr std::size_t kSafetensorsHeaderMax = 100 * kMiB;  ///< the format's own bound

}  // namespace ddprun::limits
