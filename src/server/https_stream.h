// DNS over HTTPS (RFC 8484) to a client: one HTTP/2 connection (RFC 9113), a request for each question, kMaxRequests at a
// time. Towards its owner it is a stream like TCP: messages with their length, questions under IDs of its own, which are
// unique. What is no question is answered here, by an HTTP status. Loop thread only.
//
// Bounded by it: requests, headers, and questions whose answer nobody awaits any more. What of a question has come is
// held(); answers for which the client has no room count among queued(), and until it has, reading does not pause.
#pragma once

#include "net/stream.h"

namespace idetcd::server {

class HttpsStream final : public net::BoundedStream {
 public:
  static constexpr size_t kMaxRequests = 100;
  static constexpr size_t kMaxHeaderBytes = 8192;  // of a request, and so a GET has some 6,000 bytes of a question

  // `stream`: to the client, not started; TLS with "h2" as its application protocol.
  explicit HttpsStream(std::unique_ptr<net::BoundedStream> stream);
  ~HttpsStream() override;
  HttpsStream(const HttpsStream&) = delete;
  HttpsStream& operator=(const HttpsStream&) = delete;

  // `handler` gets whole questions in onData(); none where only held() has changed.
  void start(net::StreamHandler& handler) override;
  // REQUIRES: whole messages with their length in front, under IDs of questions.
  bool write(std::vector<uint8_t>&& bytes) override;
  // There will be no answer to the question.
  void cancel(uint16_t id) override;
  std::string failure() const override;
  void pauseReading() override;
  void resumeReading() override;
  bool isDrained() const override;
  size_t queued() const override;
  uint64_t taken() const override;
  size_t held() const override;
  void resetAtEnd() override;
  const SocketAddress& remote() const override;
  const SocketAddress& local() const override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace idetcd::server
