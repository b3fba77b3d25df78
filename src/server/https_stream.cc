#include "server/https_stream.h"

#include <unordered_map>

#include "dns/message_reader.h"
#include "dns/wire.h"
#include "net/http2.h"

namespace idetcd::server {

namespace {

constexpr size_t kMaxMessage = 65535;
constexpr size_t kPieceSize = 16384;  // after which it is looked whether the client reads
// Questions that the owner has and has not answered, those of requests that the client has reset among them.
constexpr size_t kMaxQuestions = 2 * HttpsStream::kMaxRequests;

enum class Status : uint16_t {
  kNone = 0,
  kOkay = 200,
  kBadRequest = 400,
  kNotFound = 404,
  kMethodNotAllowed = 405,
  kContentTooLarge = 413,
  kUnsupportedMediaType = 415,
  kHeaderTooLarge = 431,
};

// Appends what `text` stands for (RFC 4648 §5, without padding). False: it stands for nothing.
bool decodeBase64Url(std::string_view text, std::vector<uint8_t>& to) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  uint32_t bits = 0;
  unsigned count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    to.push_back(static_cast<uint8_t>(bits >> count));
  }
  return count < 6 && (bits & ((1U << count) - 1)) == 0;
}

// The parameter `dns` of a path's query, if there is one, and only one.
std::optional<std::string_view> questionIn(std::string_view query) {
  constexpr std::string_view kName = "dns=";
  std::optional<std::string_view> found;
  while (!query.empty()) {
    const std::string_view parameter = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), parameter.size() + 1));
    if (!parameter.starts_with(kName)) continue;
    if (found) return std::nullopt;
    found = parameter.substr(kName.size());
  }
  return found;
}

// How long a cache may keep the response, in seconds (RFC 8484 §5.1): as long as each of the answer's records, or as the
// denial that there is instead.
uint32_t freshness(std::span<const uint8_t> message) {
  const dns::HeaderView header(message.data());
  if (header.isTruncated()) return 0;
  if (header.rcode() != dns::Rcode::kNoError && header.rcode() != dns::Rcode::kNxDomain) return 0;
  size_t pos = dns::kHeaderSize;
  for (uint16_t left = header.questions(); left > 0; --left) {
    constexpr size_t kQuestionTail = 4;  // type and class
    pos = dns::skipName(message.data(), message.size(), pos);
    if (pos == 0 || message.size() - pos < kQuestionTail) return 0;
    pos += kQuestionTail;
  }
  std::optional<uint32_t> least;
  dns::MessageReader reader(message, pos);
  dns::RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    uint32_t ttl = record.ttl;
    if (record.section != dns::Section::kAnswer) {
      constexpr size_t kSoaNumbers = 20;  // the last of them is the TTL of what there is not (RFC 2308 §5)
      if (record.section != dns::Section::kAuthority || record.type != dns::code(dns::RrType::kSoa) ||
          record.rdata_size < kSoaNumbers) {
        continue;
      }
      ttl = std::min(ttl, dns::load32(&message[record.rdata + record.rdata_size - sizeof(uint32_t)]));
    }
    least = std::min(least.value_or(ttl), ttl);
  }
  return least.value_or(0);
}

}  // namespace

// nghttp2 must not be called back into from its callbacks, and the owner may destroy everything when it hears of
// something. So callbacks only note what has happened; deliver() tells it once nghttp2 has returned.
struct HttpsStream::Impl : net::StreamHandler, std::enable_shared_from_this<HttpsStream::Impl> {
  struct Request {
    std::string method{};  // until all headers have come, as the path
    std::string path{};
    bool is_post = false;
    bool is_dns = false;  // its body
    size_t header_bytes = 0;
    bool has_headers = false;         // all of them
    bool is_over = false;             // refused, or its question is the owner's
    std::vector<uint8_t> question{};  // with its length in front
    uint16_t id = 0;                  // once it is the owner's
    uint16_t client_id = 0;
    std::vector<uint8_t> answer{};  // what is left of it, from `sent` on
    size_t sent = 0;
  };

  explicit Impl(std::unique_ptr<net::BoundedStream> to_client) : stream(std::move(to_client)) {}

  // The owner is gone; one of our functions may still be running, which then holds `this`.
  void close() {
    handler = nullptr;
    if (!broken && is_connected && !is_reset) {
      nghttp2_session_terminate_session(session.get(), NGHTTP2_NO_ERROR);
      flush();
    }
    stream.reset();
  }

  bool setUp();
  void flush();
  void deliver();
  void endIfLast();
  void closeIfOver();
  void answer(uint16_t id, std::vector<uint8_t> message);
  void respond(int32_t stream_id, Status status, size_t size, uint32_t max_age);
  void applyPause();

  void onConnected() override {
    is_connected = writable = true;
    flush();
    handler->onConnected();
  }
  void onHandshakeStep() override { handler->onHandshakeStep(); }
  void onData(std::span<const uint8_t> bytes) override;
  void onEnd() override { handler->onEnd(); }
  void onDrained() override {
    const auto self = shared_from_this();
    writable = true;
    flush();
    if (isDrained()) handler->onDrained();
    closeIfOver();
  }
  void onError() override { handler->onError(); }

  bool isDrained() const { return stream->isDrained(); }

  // The reports of nghttp2.
  Request* find(int32_t stream_id) {
    const auto found = requests.find(stream_id);
    return found != requests.end() ? &found->second : nullptr;
  }
  int noteRequest(int32_t stream_id);
  void noteField(int32_t stream_id, std::string_view name, std::string_view value);
  void noteHeaders(int32_t stream_id);
  void noteBody(int32_t stream_id, std::span<const uint8_t> bytes);
  void noteQuestion(int32_t stream_id);
  void noteFrame(const nghttp2_frame& frame);
  void noteClosed(int32_t stream_id);
  void refuse(int32_t stream_id, Status status);
  Status judge(const Request& request) const;
  ssize_t readAnswer(int32_t stream_id, std::span<uint8_t> to, uint32_t& flags);

  std::unique_ptr<net::BoundedStream> stream;
  net::StreamHandler* handler = nullptr;
  net::Http2Session session;
  std::unordered_map<int32_t, Request> requests;  // by HTTP/2 stream
  std::unordered_map<uint16_t, int32_t>
      questions;                 // the streams of those that the owner has; 0: the client has reset it
  std::vector<uint8_t> arrived;  // questions that the owner has not heard of
  uint16_t last_id = 0;
  size_t unsent = 0;  // bytes of answers
  uint64_t sent = 0;  // those that the client has had room for
  size_t held = 0;    // bytes of questions
  size_t told = 0;    // of them, as the owner knows
  bool is_connected = false;
  bool is_reset = false;
  bool is_last = false;   // the client has sent a GOAWAY
  bool is_ended = false;  // as the owner knows
  bool paused = false;    // by the owner
  bool reads = true;
  bool writable = false;  // the kernel has taken what was written
  bool broken = false;    // nghttp2 has failed: nothing is sent any more
};

bool HttpsStream::Impl::setUp() {
  nghttp2_session_callbacks* callbacks = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) return false;
  nghttp2_session_callbacks_set_on_begin_headers_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
        if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
        return static_cast<Impl*>(self)->noteRequest(frame->hd.stream_id);
      });
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
                    const uint8_t* value, size_t value_size, uint8_t, void* self) {
        static_cast<Impl*>(self)->noteField(frame->hd.stream_id, net::viewOf(name, name_size),
                                            net::viewOf(value, value_size));
        return 0;
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
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks,
                                                         [](nghttp2_session*, int32_t stream_id, uint32_t, void* self) {
                                                           static_cast<Impl*>(self)->noteClosed(stream_id);
                                                           return 0;
                                                         });
  nghttp2_session* made = nullptr;
  const int error = nghttp2_session_server_new(&made, callbacks, this);
  nghttp2_session_callbacks_del(callbacks);
  if (error != 0) return false;
  session.reset(made);
  const std::array<nghttp2_settings_entry, 2> settings{{{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMaxRequests},
                                                        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxHeaderBytes}}};
  return nghttp2_submit_settings(made, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) == 0;
}

void HttpsStream::Impl::flush() {
  while (is_connected && writable && !broken && stream != nullptr) {
    std::vector<uint8_t> bytes = net::takeBytes(session, kPieceSize, broken);
    if (bytes.empty()) break;
    writable = stream->write(std::move(bytes));
  }
  if (stream != nullptr) applyPause();
}

// A client that has no room for an answer says so when it has: that must be read.
void HttpsStream::Impl::applyPause() {
  const bool wanted = !paused || unsent > 0;
  if (!is_connected || wanted == std::exchange(reads, wanted)) return;
  reads ? stream->resumeReading() : stream->pauseReading();
}

void HttpsStream::Impl::onData(std::span<const uint8_t> bytes) {
  const auto self = shared_from_this();
  const size_t unsent_before = unsent;
  const ssize_t used = nghttp2_session_mem_recv(session.get(), bytes.data(), bytes.size());
  if (used < 0) {
    broken = true;
    return handler->onError();
  }
  flush();
  deliver();
  if (handler != nullptr && unsent < unsent_before && isDrained()) handler->onDrained();
  endIfLast();
  closeIfOver();
}

// Behind a GOAWAY no request is begun; those that there are end first.
void HttpsStream::Impl::endIfLast() {
  if (handler == nullptr || !is_last || is_ended) return;
  is_ended = std::ranges::all_of(requests, [](const auto& request) { return request.second.is_over; });
  if (is_ended) handler->onEnd();
}

// After an error of the protocol, or behind a GOAWAY.
void HttpsStream::Impl::closeIfOver() {
  if (handler == nullptr) return;
  const bool is_over =
      nghttp2_session_want_read(session.get()) == 0 && nghttp2_session_want_write(session.get()) == 0 && isDrained();
  if (is_over || broken) handler->onError();
}

void HttpsStream::Impl::deliver() {
  if (arrived.empty() && told == held) return;
  told = held;
  handler->onData(std::exchange(arrived, {}));
}

int HttpsStream::Impl::noteRequest(int32_t stream_id) {
  if (requests.size() >= kMaxRequests || questions.size() >= kMaxQuestions) {
    nghttp2_submit_rst_stream(session.get(), NGHTTP2_FLAG_NONE, stream_id, NGHTTP2_REFUSED_STREAM);
    return 0;
  }
  requests.emplace(stream_id, Request{});
  return 0;
}

void HttpsStream::Impl::noteField(int32_t stream_id, std::string_view name, std::string_view value) {
  Request* const request = find(stream_id);
  if (request == nullptr || request->has_headers) return;
  request->header_bytes += name.size() + value.size() + net::kHeaderFieldOverhead;
  if (request->header_bytes > kMaxHeaderBytes) return;
  if (name == ":method") request->method = value;
  if (name == ":path") request->path = value;
  if (name == "content-type") request->is_dns = net::isDnsMessage(value);
}

Status HttpsStream::Impl::judge(const Request& request) const {
  if (request.header_bytes > kMaxHeaderBytes) return Status::kHeaderTooLarge;
  if (request.path.substr(0, request.path.find('?')) != net::kDohPath) return Status::kNotFound;
  if (request.method != "GET" && request.method != "POST") return Status::kMethodNotAllowed;
  return request.method == "POST" && !request.is_dns ? Status::kUnsupportedMediaType : Status::kOkay;
}

void HttpsStream::Impl::noteHeaders(int32_t stream_id) {
  Request* const request = find(stream_id);
  if (request == nullptr || std::exchange(request->has_headers, true)) return;
  const Status status = judge(*request);
  const std::string path = std::exchange(request->path, {});
  request->is_post = std::exchange(request->method, {}) == "POST";
  if (status != Status::kOkay) return refuse(stream_id, status);
  request->question.resize(dns::kLengthPrefix);
  held += request->question.size();
  if (request->is_post) return;
  const size_t mark = path.find('?');
  const auto text =
      questionIn(mark != std::string::npos ? std::string_view(path).substr(mark + 1) : std::string_view());
  const bool is_good = text && decodeBase64Url(*text, request->question);
  held += request->question.size() - dns::kLengthPrefix;
  if (!is_good) refuse(stream_id, Status::kBadRequest);
}

void HttpsStream::Impl::noteBody(int32_t stream_id, std::span<const uint8_t> bytes) {
  Request* const request = find(stream_id);
  if (request == nullptr || request->is_over) return;
  if (!request->is_post) return;
  if (bytes.size() > dns::kLengthPrefix + kMaxMessage - request->question.size())
    return refuse(stream_id, Status::kContentTooLarge);
  request->question.insert(request->question.end(), bytes.begin(), bytes.end());
  held += bytes.size();
}

void HttpsStream::Impl::noteQuestion(int32_t stream_id) {
  Request* const request = find(stream_id);
  if (request == nullptr || request->is_over) return;
  const std::span<uint8_t> message = std::span(request->question).subspan(dns::kLengthPrefix);
  if (message.size() < dns::kHeaderSize || dns::HeaderView(message.data()).isResponse())
    return refuse(stream_id, Status::kBadRequest);
  do {
    ++last_id;
  } while (questions.contains(last_id));
  request->id = last_id;
  request->client_id = dns::load16(message.data());
  dns::store16(request->question.data(), static_cast<uint16_t>(message.size()));
  dns::store16(message.data(), request->id);
  questions.emplace(request->id, stream_id);
  request->is_over = true;
  held -= request->question.size();
  arrived.insert(arrived.end(), request->question.begin(), request->question.end());
  request->question = {};
}

void HttpsStream::Impl::noteFrame(const nghttp2_frame& frame) {
  if (frame.hd.type == NGHTTP2_GOAWAY) is_last = true;
  if (frame.hd.type != NGHTTP2_HEADERS && frame.hd.type != NGHTTP2_DATA) return;
  if (frame.hd.type == NGHTTP2_HEADERS) noteHeaders(frame.hd.stream_id);
  if ((frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) noteQuestion(frame.hd.stream_id);
}

void HttpsStream::Impl::noteClosed(int32_t stream_id) {
  const auto request = requests.find(stream_id);
  if (request == requests.end()) return;
  const Request& closed = request->second;
  unsent -= closed.answer.size() - closed.sent;
  held -= closed.question.size();
  if (const auto question = questions.find(closed.id); question != questions.end() && question->second == stream_id)
    question->second = 0;
  requests.erase(request);
}

// What of the request is still to come is not waited for.
void HttpsStream::Impl::refuse(int32_t stream_id, Status status) {
  Request& request = *find(stream_id);
  held -= request.question.size();
  request.question = {};
  request.is_over = true;
  respond(stream_id, status, 0, 0);
}

void HttpsStream::Impl::respond(int32_t stream_id, Status status, size_t size, uint32_t max_age) {
  const std::string code = std::to_string(static_cast<unsigned>(status));
  const std::string length = std::to_string(size);
  const std::string cache = fmt::format("max-age={}", max_age);
  std::vector<nghttp2_nv> fields{net::headerField(":status", code), net::headerField("content-length", length)};
  if (status == Status::kOkay) {
    fields.push_back(net::headerField("content-type", net::kDohMediaType));
    fields.push_back(net::headerField("cache-control", cache));
  }
  if (status == Status::kMethodNotAllowed) fields.push_back(net::headerField("allow", "GET, POST"));
  const nghttp2_data_provider body{.source = {.ptr = nullptr},
                                   .read_callback = [](nghttp2_session*, int32_t id, uint8_t* to, size_t room,
                                                       uint32_t* flags, nghttp2_data_source*, void* self) {
                                     return static_cast<Impl*>(self)->readAnswer(id, {to, room}, *flags);
                                   }};
  const int error =
      nghttp2_submit_response(session.get(), stream_id, fields.data(), fields.size(), size > 0 ? &body : nullptr);
  if (error != 0) broken = broken || nghttp2_is_fatal(error) != 0;
}

ssize_t HttpsStream::Impl::readAnswer(int32_t stream_id, std::span<uint8_t> to, uint32_t& flags) {
  Request* const request = find(stream_id);
  if (request == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // it is closed
  const size_t size = std::min(to.size(), request->answer.size() - request->sent);
  std::memcpy(to.data(), request->answer.data() + request->sent, size);
  request->sent += size;
  sent += size;
  unsent -= size;
  if (request->sent == request->answer.size()) flags |= NGHTTP2_DATA_FLAG_EOF;
  return static_cast<ssize_t>(size);
}

void HttpsStream::Impl::answer(uint16_t id, std::vector<uint8_t> message) {
  const auto question = questions.find(id);
  if (question == questions.end()) return;
  const int32_t stream_id = question->second;
  questions.erase(question);
  Request* const request = find(stream_id);
  if (request == nullptr) return;  // nobody waits for it
  dns::store16(message.data(), request->client_id);
  const uint32_t max_age = freshness(message);
  const size_t size = message.size();
  unsent += size;
  request->answer = std::move(message);
  respond(stream_id, Status::kOkay, size, max_age);
}

HttpsStream::HttpsStream(std::unique_ptr<net::BoundedStream> stream)
    : impl_(std::make_shared<Impl>(std::move(stream))) {
  impl_->broken = !impl_->setUp();
}

HttpsStream::~HttpsStream() { impl_->close(); }

void HttpsStream::start(net::StreamHandler& handler) {
  impl_->handler = &handler;
  if (impl_->broken) return handler.onError();
  impl_->stream->start(*impl_);
}

bool HttpsStream::write(std::vector<uint8_t>&& bytes) {
  if (impl_->broken) return false;
  for (std::span<const uint8_t> rest = bytes; !rest.empty();) {
    const size_t size = dns::load16(rest.data());
    const auto message = rest.subspan(dns::kLengthPrefix, size);
    impl_->answer(dns::load16(message.data()), {message.begin(), message.end()});
    rest = rest.subspan(dns::kLengthPrefix + size);
  }
  impl_->flush();
  return impl_->unsent == 0 && impl_->isDrained();
}

void HttpsStream::cancel(uint16_t id) {
  const auto question = impl_->questions.find(id);
  if (question == impl_->questions.end()) return;
  const int32_t stream_id = question->second;
  impl_->questions.erase(question);
  if (impl_->broken || stream_id == 0) return;
  nghttp2_submit_rst_stream(impl_->session.get(), NGHTTP2_FLAG_NONE, stream_id, NGHTTP2_CANCEL);
  impl_->flush();
}

std::string HttpsStream::failure() const { return impl_->stream->failure(); }

void HttpsStream::pauseReading() {
  impl_->paused = true;
  impl_->applyPause();
}

void HttpsStream::resumeReading() {
  impl_->paused = false;
  impl_->applyPause();
}

bool HttpsStream::isDrained() const { return impl_->isDrained(); }
size_t HttpsStream::queued() const { return impl_->stream->queued() + impl_->unsent; }
// Of answers: whatever else is taken, such as replies to a PING, makes no room.
uint64_t HttpsStream::taken() const { return impl_->sent - std::min<uint64_t>(impl_->sent, impl_->stream->queued()); }
size_t HttpsStream::held() const { return impl_->held + impl_->stream->held(); }
void HttpsStream::resetAtEnd() {
  impl_->is_reset = true;
  impl_->stream->resetAtEnd();
}
const SocketAddress& HttpsStream::remote() const { return impl_->stream->remote(); }
const SocketAddress& HttpsStream::local() const { return impl_->stream->local(); }

}  // namespace idetcd::server
