// Asks one primary for a zone over TCP: first for its SOA, if there is a copy already, then, if the serial is a later one, for
// the changes since then (IXFR), or for all of it (AXFR). Its end is reported once, when it begins to close; nothing after that. On its loop's thread.
#pragma once

#include "base/clock.h"
#include "base/executor.h"
#include "base/random.h"
#include "net/tcp.h"
#include "tsig/signature.h"
#include "zones/transfer_reader.h"

namespace idetcd::directive {

class IncomingTransfer final : public net::StreamHandler {
 public:
  static constexpr std::chrono::seconds kSilence{15};  // for which the primary may say nothing, up to twice as long once it has begun
  // With which the SOA alone, in answer to IXFR, is followed by more; else it says that there is more than fits
  // (RFC 1995 §2: over UDP, but some send it over TCP).
  static constexpr std::chrono::seconds kAlone{1};
  static constexpr std::chrono::minutes kLongest{60};

  struct Question {
    dns::Name zone;
    std::optional<uint32_t> serial{};  // of the copy
    bool whole = false;                // without changes to the copy
    SocketAddress primary;
    const tsig::Key* key = nullptr;  // null: neither is signed
  };
  // The messages of the zone; empty: the copy is as new as the primary's. The error is for the log.
  using Done = std::function<void(Result<zones::TransferReader::Messages>)>;

  IncomingTransfer(net::EventLoop& loop, SecureRandom& random, std::shared_ptr<Executor> executor, Question question,
                   Done done);
  ~IncomingTransfer() override;
  IncomingTransfer(const IncomingTransfer&) = delete;
  IncomingTransfer& operator=(const IncomingTransfer&) = delete;

  // Calls done() at once where nothing can be tried.
  void start();
  // To the last question, when done() is called.
  enum class Answer {
    kZone,       // whole, or in part
    kChanges,    // to the copy, all of them or in part
    kNoChanges,  // an error, the SOA alone, or none that can be read, where they were asked for
    kNone,       // where they were asked for
  };
  Answer answer() const { return answer_; }

  void onConnected() override;
  void onData(std::span<const uint8_t> bytes) override;
  void onEnd() override { finish(fail("the connection has ended too early")); }
  void onDrained() override {}
  void onError() override { finish(fail(connection_->failure())); }

 private:
  void ask(dns::RrType type);
  // Why it is not to be believed. The error is for the log.
  Result<void> check(std::span<const uint8_t> message);
  bool hasQuestion(std::span<const uint8_t> message) const;
  void onMessage(std::span<const uint8_t> message);
  void onSerial(std::span<const uint8_t> message);
  void onZone(std::span<const uint8_t> message);
  bool hasSoaAlone() const;  // in answer to IXFR
  void finish(Result<zones::TransferReader::Messages> result);
  void onTimer();

  net::EventLoop& loop_;
  SecureRandom& random_;
  const std::shared_ptr<Executor> executor_;
  const Question question_;
  Done done_;  // null: it was called
  net::TcpConnector connector_;
  std::unique_ptr<net::TcpConnection> connection_;
  zones::TransferReader reader_;
  std::optional<tsig::Verifier> verifier_;
  dns::RrType asked_{};
  Answer answer_ = Answer::kZone;
  uint16_t id_ = 0;
  bool is_first_ = true;  // the next message to the last question
  std::vector<uint8_t> input_;
  bool heard_ = false;  // since the timer's last expiry
  BootClock::time_point begin_ = BootClock::now();
  net::Timer timer_;
};

}  // namespace idetcd::directive
