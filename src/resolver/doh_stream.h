// DNS over HTTPS (RFC 8484) as a client: one HTTP/2 connection (RFC 9113), a request for each question, as many at a
// time as the server allows. Towards its owner it is a stream like TCP: messages with their length. On the wire the ID
// is 0, for caches. Memory is bounded whatever the server sends: length of answers and headers, cancelled requests,
// unread output. Loop thread only.
#pragma once

#include "net/stream.h"
#include "resolver/upstream.h"

namespace idetcd::resolver {

class DohStream : public net::Stream {
 public:
  struct Options {
    std::string authority;  // host and port as in a URL (RFC 3986 §3.2)
    DohMethod method = DohMethod::kPost;
  };

  // `stream`: to the server, not started; TLS with "h2" as its application protocol.
  DohStream(std::unique_ptr<net::Stream> stream, Options options);
  ~DohStream() override;
  DohStream(const DohStream&) = delete;
  DohStream& operator=(const DohStream&) = delete;

  // `handler` gets each answer in one onData(), and onUnanswered() instead where the server gives none.
  void start(net::StreamHandler& handler) override;
  // REQUIRES: one whole message with its length in front, under an ID that no other has that is waited for.
  bool write(std::vector<uint8_t>&& bytes) override;
  std::string failure() const override;
  // Neither told to stop by the server (GOAWAY), nor at the limit that it has set (SETTINGS_MAX_CONCURRENT_STREAMS).
  bool takesMore() const override;
  void cancel(uint16_t id) override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace idetcd::resolver
