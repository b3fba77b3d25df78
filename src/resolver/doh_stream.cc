#include "resolver/doh_stream.h"

#include <unordered_map>

#include "dns/message_reader.h"
#include "dns/wire.h"
#include "net/http2.h"

namespace idetcd::resolver {

namespace {

constexpr size_t kMaxMessage = 65535;
constexpr size_t kMaxHeaderBytes = 16384;  // of one response, those of interim responses included
constexpr size_t kWriteSize = 16384;       // after which it is looked whether the server reads
constexpr size_t kMaxRequests = 100;       // at a time, if the server allows more or has not said yet
constexpr std::string_view kOkay = "200";

// RFC 4648 §5, without padding.
std::string base64Url(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string text;
  text.reserve((bytes.size() * 4 + 2) / 3);
  uint32_t bits = 0;
  unsigned count = 0;
  for (const uint8_t byte : bytes) {
    bits = bits << 8 | byte;
    for (count += 8; count >= 6; count -= 6) text += kDigits[bits >> (count - 6) & 0x3f];
  }
  if (count > 0) text += kDigits[bits << (6 - count) & 0x3f];
  return text;
}

// A response from a cache has been there for `age` seconds (RFC 8484 §5.1), which its TTLs do not know.
void lowerTtls(std::span<uint8_t> message, uint32_t age) {
  size_t pos = dns::kHeaderSize;
  for (uint16_t left = dns::HeaderView(message.data()).questions(); left > 0; --left) {
    constexpr size_t kQuestionTail = 4;  // type and class
    pos = dns::skipName(message.data(), message.size(), pos);
    if (pos == 0 || message.size() - pos < kQuestionTail) return;  // whoever reads it finds out
    pos += kQuestionTail;
  }
  dns::MessageReader reader(message, pos);
  dns::RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    constexpr size_t kTtlBeforeRdata = 6;
    constexpr uint32_t kMaxTtl = 0x7fffffff;  // a larger one counts as 0 (RFC 2181 §8)
    if (record.type == dns::code(dns::RrType::kOpt) || record.ttl > kMaxTtl) continue;
    dns::store32(&message[record.rdata - kTtlBeforeRdata], record.ttl - std::min(record.ttl, age));
  }
}

}  // namespace

// nghttp2 must not be called back into from its callbacks, and the owner may destroy everything when it hears of
// something. So callbacks only note what has happened; deliver() tells it once nghttp2 has returned.
struct DohStream::Impl : net::StreamHandler, std::enable_shared_from_this<DohStream::Impl> {
  struct Request {
    uint16_t id = 0;
    std::vector<uint8_t> question;  // of POST: what is left to be sent, from `sent` on
    size_t sent = 0;
    size_t header_bytes = 0;
    std::string status{};
    bool is_dns = false;
    uint32_t age = 0;
    std::vector<uint8_t> answer{};  // with room for its length in front
  };
  struct DohOutcome {
    uint16_t id;
    std::vector<uint8_t> answer;  // with its length; empty: there is none, because of `reason`
    std::string reason;
    bool worth_another_try = false;
  };

  Impl(std::unique_ptr<net::Stream> to_server, Options doh_options)
      : options(std::move(doh_options)), stream(std::move(to_server)) {}

  // The owner is gone; one of our functions may still be running, which then holds `this`.
  void close() {
    handler = nullptr;
    stream.reset();
  }

  bool setUp();
  void submit(std::span<const uint8_t> message);
  void flush();
  void end(std::string reason);
  void deliver();
  bool takesMore() const;

  void onConnected() override {
    connected = writable = true;
    flush();
  }
  void onData(std::span<const uint8_t> bytes) override;
  void onEnd() override {
    const auto self = shared_from_this();
    reason_ended = "closed";
    handler->onEnd();
  }
  void onDrained() override {
    writable = true;
    flush();
  }
  void onError() override { handler->onError(); }

  // The reports of nghttp2.
  Request* find(int32_t stream_id) {
    const auto found = requests.find(stream_id);
    return found != requests.end() ? &found->second : nullptr;
  }
  void refuse(int32_t stream_id, std::string reason, bool worth_another_try = false);
  void refuseAndCancel(int32_t stream_id, std::string reason);
  int noteField(int32_t stream_id, std::string_view name, std::string_view value);
  void noteHeaders(int32_t stream_id);
  void noteBody(int32_t stream_id, std::span<const uint8_t> bytes);
  void noteAnswer(int32_t stream_id);
  void noteFrame(const nghttp2_frame& frame);
  ssize_t readQuestion(int32_t stream_id, std::span<uint8_t> to, uint32_t& flags);

  const Options options;
  std::unique_ptr<net::Stream> stream;
  net::StreamHandler* handler = nullptr;
  net::Http2Session session;
  std::unordered_map<int32_t, Request> requests;        // by HTTP/2 stream
  std::unordered_map<uint16_t, int32_t> streams_by_id;  // of `requests`
  std::deque<DohOutcome> outcomes;                         // that the owner has not heard of
  std::string reason_ended;
  bool connected = false;
  bool writable = false;  // the kernel has taken what was written
  bool broken = false;    // nghttp2 has failed: nothing is sent any more
};

bool DohStream::Impl::setUp() {
  nghttp2_session_callbacks* callbacks = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) return false;
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
                    const uint8_t* value, size_t value_size, uint8_t, void* self) {
        return static_cast<Impl*>(self)->noteField(frame->hd.stream_id, net::viewOf(name, name_size),
                                                   net::viewOf(value, value_size));
      });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks, [](nghttp2_session*, uint8_t, int32_t stream_id, const uint8_t* data, size_t size, void* self) {
        static_cast<Impl*>(self)->noteBody(stream_id, {data, size});
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks,
                                                       [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
                                                         static_cast<Impl*>(self)->noteFrame(*frame);
                                                         return 0;
                                                       });
  nghttp2_session_callbacks_set_on_frame_not_send_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, int, void* self) {
        if (frame->hd.type == NGHTTP2_HEADERS)
          static_cast<Impl*>(self)->refuse(frame->hd.stream_id, "HTTP/2: the request cannot be sent", true);
        return 0;
      });
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, [](nghttp2_session*, int32_t stream_id,
                                                                       uint32_t error, void* self) {
    static_cast<Impl*>(self)->refuse(stream_id, fmt::format("HTTP/2: stream closed: {}", nghttp2_http2_strerror(error)),
                                     error == NGHTTP2_REFUSED_STREAM);  // RFC 9113 §8.7: it was not looked at
    return 0;
  });
  nghttp2_session* made = nullptr;
  const int error = nghttp2_session_client_new(&made, callbacks, this);
  nghttp2_session_callbacks_del(callbacks);
  if (error != 0) return false;
  session.reset(made);
  const std::array<nghttp2_settings_entry, 3> settings{{{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
                                                        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 0},  // pushed ones
                                                        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxHeaderBytes}}};
  return nghttp2_submit_settings(made, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) == 0;
}

void DohStream::Impl::submit(std::span<const uint8_t> message) {
  Request request{.id = dns::load16(message.data()), .question = {message.begin(), message.end()}};
  dns::store16(request.question.data(), 0);
  const bool is_post = options.method == DohMethod::kPost;
  const std::string path =
      is_post ? std::string(net::kDohPath) : fmt::format("{}?dns={}", net::kDohPath, base64Url(request.question));
  const std::string length = std::to_string(request.question.size());
  std::vector<nghttp2_nv> fields{net::headerField(":method", is_post ? "POST" : "GET"),
                                 net::headerField(":scheme", "https"),
                                 net::headerField(":authority", options.authority), net::headerField(":path", path),
                                 net::headerField("accept", net::kDohMediaType)};
  if (is_post) {
    fields.push_back(net::headerField("content-type", net::kDohMediaType));
    fields.push_back(net::headerField("content-length", length));
  }
  const nghttp2_data_provider question{
      .source = {.ptr = nullptr},
      .read_callback = [](nghttp2_session*, int32_t stream_id, uint8_t* to, size_t size, uint32_t* flags,
                          nghttp2_data_source*, void* self) {
        return static_cast<Impl*>(self)->readQuestion(stream_id, {to, size}, *flags);
      }};
  const int32_t stream_id = nghttp2_submit_request(session.get(), nullptr, fields.data(), fields.size(),
                                                   is_post ? &question : nullptr, nullptr);
  if (stream_id < 0) {  // takesMore() is false then, and the question has its time like one that is lost
    broken = broken || nghttp2_is_fatal(stream_id) != 0;
    return;
  }
  streams_by_id[request.id] = stream_id;
  requests.emplace(stream_id, std::move(request));
}

ssize_t DohStream::Impl::readQuestion(int32_t stream_id, std::span<uint8_t> to, uint32_t& flags) {
  Request* const request = find(stream_id);
  if (request == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // given up
  const size_t size = std::min(to.size(), request->question.size() - request->sent);
  std::memcpy(to.data(), request->question.data() + request->sent, size);
  request->sent += size;
  if (request->sent == request->question.size()) flags |= NGHTTP2_DATA_FLAG_EOF;
  return static_cast<ssize_t>(size);
}

// Only while the kernel takes it: what a server that does not read makes us want to say stays within nghttp2, which
// bounds it.
void DohStream::Impl::flush() {
  while (connected && writable && !broken && stream != nullptr) {
    std::vector<uint8_t> bytes = net::takeBytes(session, kWriteSize, broken);
    if (bytes.empty()) return;
    writable = stream->write(std::move(bytes));
  }
}

void DohStream::Impl::onData(std::span<const uint8_t> bytes) {
  const auto self = shared_from_this();
  const ssize_t used = nghttp2_session_mem_recv(session.get(), bytes.data(), bytes.size());
  if (used < 0) return end(fmt::format("HTTP/2: {}", nghttp2_strerror(static_cast<int>(used))));
  flush();
  deliver();
  if (handler == nullptr) return;
  // After an error of the protocol, or a GOAWAY that nobody waits behind.
  const bool is_over = nghttp2_session_want_read(session.get()) == 0 && nghttp2_session_want_write(session.get()) == 0;
  if (is_over || broken) end("HTTP/2: connection ended");
}

void DohStream::Impl::end(std::string reason) {
  deliver();
  if (handler == nullptr) return;
  reason_ended = std::move(reason);
  handler->onError();
}

void DohStream::Impl::deliver() {
  const auto self = shared_from_this();
  while (handler != nullptr && !outcomes.empty()) {
    const DohOutcome outcome = std::move(outcomes.front());
    outcomes.pop_front();
    if (outcome.answer.empty()) {
      handler->onUnanswered(outcome.id, outcome.reason, outcome.worth_another_try);
    } else {
      handler->onData(outcome.answer);
    }
  }
}

bool DohStream::Impl::takesMore() const {
  if (!session || broken || nghttp2_session_check_request_allowed(session.get()) == 0) return false;
  const uint32_t allowed = nghttp2_session_get_remote_settings(session.get(), NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
  return requests.size() < std::min<size_t>(allowed, kMaxRequests);
}

void DohStream::Impl::refuse(int32_t stream_id, std::string reason, bool worth_another_try) {
  const auto request = requests.find(stream_id);
  if (request == requests.end()) return;  // it has had its answer
  outcomes.push_back(
      {.id = request->second.id, .answer = {}, .reason = std::move(reason), .worth_another_try = worth_another_try});
  streams_by_id.erase(request->second.id);
  requests.erase(request);
}

void DohStream::Impl::refuseAndCancel(int32_t stream_id, std::string reason) {
  refuse(stream_id, std::move(reason));
  nghttp2_submit_rst_stream(session.get(), NGHTTP2_FLAG_NONE, stream_id, NGHTTP2_CANCEL);
}

// Returns what nghttp2 is to do.
int DohStream::Impl::noteField(int32_t stream_id, std::string_view name, std::string_view value) {
  Request* const request = find(stream_id);
  if (request == nullptr) return 0;
  request->header_bytes += name.size() + value.size() + net::kHeaderFieldOverhead;
  if (request->header_bytes > kMaxHeaderBytes) {
    refuse(stream_id, "HTTP: the header is too long");
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // resets the stream
  }
  if (name == ":status") {  // of a response, be it after an interim one
    request->status = value;
    request->is_dns = false;
    request->age = 0;
  }
  if (name == "content-type") request->is_dns = net::isDnsMessage(value);
  if (name == "age") request->age = parseNumber<uint32_t>(value).value_or(0);
  return 0;
}

void DohStream::Impl::noteHeaders(int32_t stream_id) {
  const Request* const request = find(stream_id);
  if (request == nullptr || request->status.starts_with('1')) return;  // the response is yet to come
  if (request->status != kOkay) return refuseAndCancel(stream_id, "HTTP status " + printable(request->status));
  if (!request->is_dns) refuseAndCancel(stream_id, fmt::format("HTTP: no {}", net::kDohMediaType));
}

void DohStream::Impl::noteBody(int32_t stream_id, std::span<const uint8_t> bytes) {
  Request* const request = find(stream_id);
  if (request == nullptr) return;
  if (request->answer.empty()) request->answer.resize(dns::kLengthPrefix);
  if (bytes.size() > dns::kLengthPrefix + kMaxMessage - request->answer.size())
    return refuseAndCancel(stream_id, "HTTP: the body is too long");
  request->answer.insert(request->answer.end(), bytes.begin(), bytes.end());
}

void DohStream::Impl::noteAnswer(int32_t stream_id) {
  Request* const request = find(stream_id);
  if (request == nullptr) return;
  if (request->answer.size() < dns::kLengthPrefix + dns::kHeaderSize) return refuse(stream_id, "HTTP: the body is no DNS message");
  std::vector<uint8_t> answer = std::move(request->answer);
  const auto message = std::span(answer).subspan(dns::kLengthPrefix);
  dns::store16(answer.data(), static_cast<uint16_t>(message.size()));
  dns::store16(message.data(), request->id);
  if (request->age > 0) lowerTtls(message, request->age);
  outcomes.push_back({.id = request->id, .answer = std::move(answer), .reason = {}});
  streams_by_id.erase(request->id);
  requests.erase(stream_id);
}

void DohStream::Impl::noteFrame(const nghttp2_frame& frame) {
  if (frame.hd.type != NGHTTP2_HEADERS && frame.hd.type != NGHTTP2_DATA) return;
  if (frame.hd.type == NGHTTP2_HEADERS) noteHeaders(frame.hd.stream_id);
  if ((frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) noteAnswer(frame.hd.stream_id);
}

DohStream::DohStream(std::unique_ptr<net::Stream> stream, Options options)
    : impl_(std::make_shared<Impl>(std::move(stream), std::move(options))) {
  impl_->broken = !impl_->setUp();
}

DohStream::~DohStream() { impl_->close(); }

void DohStream::start(net::StreamHandler& handler) {
  impl_->handler = &handler;
  impl_->stream->start(*impl_);
}

bool DohStream::write(std::vector<uint8_t>&& bytes) {
  if (!impl_->broken) impl_->submit(std::span<const uint8_t>(bytes).subspan(dns::kLengthPrefix));
  impl_->flush();
  return true;  // nobody waits until a question has left
}

std::string DohStream::failure() const {
  return impl_->reason_ended.empty() ? impl_->stream->failure() : impl_->reason_ended;
}

bool DohStream::takesMore() const { return impl_->takesMore(); }

void DohStream::cancel(uint16_t id) {
  // It may be noted already, and the ID may soon be another question's.
  std::erase_if(impl_->outcomes, [id](const Impl::DohOutcome& outcome) { return outcome.id == id; });
  const auto found = impl_->streams_by_id.find(id);
  if (found == impl_->streams_by_id.end()) return;
  const int32_t stream_id = found->second;
  impl_->streams_by_id.erase(found);
  impl_->requests.erase(stream_id);
  nghttp2_submit_rst_stream(impl_->session.get(), NGHTTP2_FLAG_NONE, stream_id, NGHTTP2_CANCEL);
  impl_->flush();
}

}  // namespace idetcd::resolver
