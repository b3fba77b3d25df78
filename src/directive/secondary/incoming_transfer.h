// Asks one primary over TCP for a zone's serial (SOA), for the changes since a serial (IXFR), or for all of the zone (AXFR).
// Its end is reported once, when it begins to close; nothing after that. On its loop's thread.
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
    dns::RrType type = dns::RrType::kSoa;  // or kIxfr, kAxfr
    std::optional<uint32_t> serial{};      // of the copy; for IXFR only
    SocketAddress primary;
    const tsig::Key* key = nullptr;  // null: neither is signed
  };
  // The messages of the zone; none of a SOA. The error is for the log.
  using Done = std::function<void(Result<zones::TransferReader::Messages>)>;

  IncomingTransfer(net::EventLoop& loop, SecureRandom& random, std::shared_ptr<Executor> executor, Question question,
                   Done done);
  ~IncomingTransfer() override;
  IncomingTransfer(const IncomingTransfer&) = delete;
  IncomingTransfer& operator=(const IncomingTransfer&) = delete;

  // Calls done() at once where nothing can be tried.
  void start();
  // When done() is called.
  enum class Answer {
    kZone,       // whole, or in part; where all of it was asked for, also none
    kChanges,    // to the copy, all of them or in part
    kNoChanges,  // an error, the SOA alone, or none that can be read, where changes were asked for
    kSoa,        // any, where the serial was asked for
    kNone,       // where the serial or changes were asked for
  };
  Answer answer() const { return answer_; }
  dns::RrType type() const { return question_.type; }
  uint32_t serial() const { return serial_; }  // of the primary, where it was asked for

  void onConnected() override;
  void onData(std::span<const uint8_t> bytes) override;
  void onEnd() override { finish(fail("the connection has ended too early")); }
  void onDrained() override {}
  void onError() override { finish(fail(connection_->failure())); }

 private:
  void ask();
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
  Answer answer_;
  uint32_t serial_ = 0;
  uint16_t id_ = 0;
  bool is_first_ = true;  // the next message
  std::vector<uint8_t> input_;
  bool heard_ = false;  // since the timer's last expiry
  BootClock::time_point begin_ = BootClock::now();
  net::Timer timer_;
};

}  // namespace idetcd::directive
