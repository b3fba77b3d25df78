// Questions to one upstream over TCP or TLS (RFC 7766, RFC 7858): connections are opened as needed, pipelined, reused,
// and closed when idle. Loop thread only. If a server closes connections with waiting questions twice, each gets one
// question, and the number doubles with every `relax` without such an end. An idle connection closes a little before
// the server's own time (RFC 7828); one that the server wants closed gets no more questions.
#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "net/event_loop.h"
#include "net/stream.h"
#include "resolver/upstream_budget.h"

namespace idetcd::resolver {

// A caller that waits for an answer over a stream. Either call may destroy it, and its ticket.
class StreamWaiter {
 public:
  virtual ~StreamWaiter() = default;
  // A message with the waiter's ID. It goes on waiting until its ticket is dropped: this may not be the answer.
  virtual void onStreamMessage(std::span<const uint8_t> message) = 0;
  // The connection is gone; the ticket is void. `used_before`: it had brought answers, so that the server may merely
  // have closed it, and another connection is worth a try.
  virtual void onStreamFailed(const std::string& reason, bool used_before) = 0;
};

class StreamPool : public UpstreamBudget::Connections {
  class Connection;

 public:
  using Connect = std::function<Result<std::unique_ptr<net::Stream>>()>;
  static constexpr size_t kMaxPipelined = 512;

  struct Options {
    std::chrono::milliseconds expire{10000};
    std::chrono::milliseconds max_age{0};  // after which a connection gets no further question; 0: none
    size_t max_idle = 0;                   // connections without a question that are kept; 0: all, until they expire
    size_t max_connections = 64;
    // Questions on a connection before another one is opened. When the maximum of connections is reached, up to
    // kMaxPipelined.
    size_t preferred_pipelined = 8;
    std::chrono::nanoseconds relax = std::chrono::seconds(10);
  };

  // One question on its way. Dropping it gives the answer up.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { drop(); }

    void drop();
    // There was no answer in time. If the connection has brought nothing else meanwhile, it gets no further questions.
    void noteLate();
    // Whether there may still be an answer.
    bool isWaiting() const;
    // Whether that was said of the connection, by whomever.
    bool isLate() const;
    // Whether the connection had been opened before `when`, and has brought nothing since.
    bool isSilentSince(BootClock::time_point when) const;

   private:
    friend class StreamPool;
    std::weak_ptr<Connection> connection_;
    uint16_t id_ = 0;
  };

  StreamPool(net::EventLoop& loop, SecureRandom& random, Options options, Connect connect);
  ~StreamPool() override;  // closes all; waiters are not called
  StreamPool(const StreamPool&) = delete;
  StreamPool& operator=(const StreamPool&) = delete;

  // Sends `message` under an ID of its own, which is returned, and sets `ticket`. `waiter` must outlive the ticket. The
  // error of `connect` where there is no connection, and none can be opened. `proven`: only over a connection that is
  // younger, or has brought something since.
  Result<uint16_t> send(std::span<const uint8_t> message, StreamWaiter& waiter, Ticket& ticket,
                        BootClock::time_point proven = {});

  size_t connectionCount() const override { return connections_.size(); }
  bool closeIdle() override;
  void closeOne() override;

 private:
  Result<std::shared_ptr<Connection>> choose(BootClock::time_point proven);
  Result<std::shared_ptr<Connection>> open();
  void remove(Connection& connection);
  void noteEarlyEnd(const Connection& connection);
  size_t pipelined();
  bool hasTooManyIdle() const;

  net::EventLoop& loop_;
  SecureRandom& random_;
  Options options_;
  Connect connect_;
  std::vector<std::shared_ptr<Connection>> connections_;  // oldest first
  size_t pipelined_;                                      // questions on a connection before another one is opened
  BootClock::time_point early_end_{};                     // the last one that counted; or when pipelined_ last grew
};

}  // namespace idetcd::resolver
