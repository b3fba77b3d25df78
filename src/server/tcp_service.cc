#include "server/tcp_service.h"

#include "dns/response.h"
#include "dns/wire.h"
#include "net/http2.h"
#include "server/https_stream.h"
#include "server/udp_service.h"

namespace idetcd::server {

namespace {

// Answers are collected up to this much before they are written, so that pipelined queries share a system call.
constexpr size_t kWriteSize = size_t{64} << 10;
// After so much work (some 50 us) clients over UDP have their turn.
constexpr size_t kWorkBeforeUdp = 64;
constexpr size_t kWorkOfQuery = 1;
constexpr size_t kWorkOfAccept = 8;
constexpr size_t kWorkOfStreamed = 32;  // a message of a zone transfer
constexpr size_t kMostStreams = 2;      // of a connection; the next query waits
constexpr std::chrono::milliseconds kTick{250};
// The divisor of the idle time-out beyond half of the connections, and beyond three quarters.
constexpr int kShortIdlePart = 4;
constexpr int kShortestIdlePart = 10;
constexpr std::chrono::milliseconds kKeepaliveUnit{100};  // RFC 7828 §3.1
constexpr std::string_view kDnsOverTls = "dot";           // by ALPN

// The question of a query, and what else of it an answer depends on.
std::vector<uint8_t> copyQuestion(const dns::Query& query) {
  const bool with_nsid = query.asksFor(dns::kAsksNsid);
  const bool with_cookie = query.asksFor(dns::kAsksCookie);
  const bool with_keepalive = query.asksFor(dns::kAsksKeepalive);
  const bool with_padding = query.asksFor(dns::kAsksPadding);
  const size_t options = (with_nsid ? dns::kOptionHeadSize : 0) + (with_keepalive ? dns::kOptionHeadSize : 0) +
                         (with_padding ? dns::kOptionHeadSize : 0) +
                         (with_cookie ? dns::kOptionHeadSize + dns::Cookie::kClientSize : 0);
  std::vector<uint8_t> copy(query.question_end + (query.has_edns ? dns::kOptSize + options : 0));
  std::copy_n(query.message, query.question_end, copy.begin());
  dns::store16(&copy[2], query.flags);  // a response may stand there already
  dns::store64(&copy[4], uint64_t{1} << 48 | (query.has_edns ? 1 : 0));  // one question, OPT
  if (query.has_edns) {
    uint8_t* opt = &copy[query.question_end];
    dns::storeOpt(opt, 0, query.dnssec_ok);
    if (with_nsid) dns::addOption(opt, dns::EdnsOption::kNsid, 0);
    if (with_keepalive) dns::addOption(opt, dns::EdnsOption::kTcpKeepalive, 0);
    if (with_padding) dns::addOption(opt, dns::EdnsOption::kPadding, 0);
    if (with_cookie)
      std::ranges::copy(query.cookie.client, dns::addOption(opt, dns::EdnsOption::kCookie, query.cookie.client.size()));
  }
  return copy;
}

}  // namespace

class TcpService::Session : public net::StreamHandler,
                            public resolve::ReplyDeferrer,
                            public ClientConnections::Connection,
                            public std::enable_shared_from_this<TcpService::Session> {
 public:
  Session(TcpService& service, std::unique_ptr<net::BoundedStream> connection)
      : Connection(service.context_.clients, connection->remote().ip),
        service_(service),
        connection_(std::move(connection)),
        client_(WriteBudget::clientOf(connection_->remote().ip)) {}
  ~Session() override {
    budget().change(client_, counted_, 0);
    service_.input_bytes_ -= input_counted_;
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void start(net::DescriptorLease lease) {
    lease_ = std::move(lease);
    connection_->start(*this);
  }
  // To make room.
  void close() {
    noteDropped();
    service_.close(*this);
  }

  bool isAnsweringAgain() const { return answering_again_; }

  void onConnected() override {  // over TLS
    has_shaken_hands_ = true;
    counters().tls_handshakes.add(1);
  }

  void onHandshakeStep() override {
    const auto self = shared_from_this();
    service_.spend(kWorkBeforeUdp);
    countInput();
    service_.boundInput();
  }

  void onData(std::span<const uint8_t> bytes) override {
    const auto self = shared_from_this();
    if (input_.empty()) {  // the common case: whole queries, answered from the read buffer
      const size_t used = serve(bytes);
      if (used == kBroken) return service_.close(*this);
      input_.assign(bytes.begin() + static_cast<ptrdiff_t>(used), bytes.end());
    } else {
      input_.insert(input_.end(), bytes.begin(), bytes.end());
      serveInput();
    }
    countInput();
    service_.boundInput();
  }

  void onEnd() override {
    ended_ = true;
    closeIfDone();
  }

  void onDrained() override {
    countQueued();
    proceed();
  }

  void onError() override {
    const auto self = shared_from_this();
    service_.close(*this);
    if (!service_.carrier_.tls || has_shaken_hands_) return;
    counters().tls_failed.add(1);
    service_.spend(kWorkBeforeUdp);
  }

  std::unique_ptr<resolve::ReplySink> keepClient() override {
    ++pending_;
    const bool again = std::exchange(answering_again_, false);
    if (again) waits_again_ = true;
    return std::make_unique<Sink>(weak_from_this(), copyQuestion(service_.job_.query), again);
  }

  // Bytes in memory.
  size_t input() const { return input_counted_; }

  bool isWatched() const { return counted_ > 0 || !deferred_.empty() || !streams_.empty() || out_of_budget_; }
  // Closes the connection if the client does not read.
  void onTick(BootClock::time_point now) {
    countQueued();
    const uint64_t taken = connection_->taken();
    if (taken > taken_ || counted_ == 0) {
      taken_ = taken;
      taken_at_ = now;
    }
    const bool scarce = budget().room(client_) != WriteBudget::Room::kPlenty;
    const auto write_time = service_.limits_.of_clients.writeTime();
    const auto stall_timeout = scarce ? std::min(kScarceStall, write_time) : write_time;
    if (now - taken_at_ >= stall_timeout) {
      service_.context_.counters.tcp_stalled.add(1);
      return reset();  // without a RST the kernel offers it to the client for minutes
    }
    if (counted_ == 0) proceed();
  }

  // Whether it is not the client's turn: the upstream's is it, or onTick() sees to what the client does not read.
  bool isBusy() const { return pending_ > 0 || isWatched(); }

  // Since the client is too slow, or takes up too much.
  void reset() {
    noteDropped();
    connection_->resetAtEnd();
    service_.close(*this);
  }

  const net::BoundedStream& connection() const { return *connection_; }

  Sessions* in = nullptr;  // where it is at `position`
  Sessions::iterator position;
  BootClock::time_point idle_since;

 private:
  static constexpr size_t kBroken = SIZE_MAX;

  using Question = std::vector<uint8_t>;

  // A reply of many messages; the query is pending until it has ended.
  struct Streaming {
    std::unique_ptr<resolve::MessageStream> messages;
    bool again;
  };

  // A later answer. The session may have gone by then; if there is no answer, it waits for one less.
  class Sink : public resolve::ReplySink {
   public:
    Sink(std::weak_ptr<Session> session, Question question, bool again)
        : session_(std::move(session)), question_(std::move(question)), again_(again) {}
    ~Sink() override {
      const auto session = session_.lock();
      if (!session) return;
      if (!sent_) session->connection_->cancel(dns::load16(question_.data()));
      session->onReplyDone(again_);
    }
    void send(std::span<const uint8_t> message) override {
      sent_ = true;
      if (const auto session = session_.lock()) session->onLateAnswer(message);
    }
    void sendAll(std::unique_ptr<resolve::MessageStream> stream) override {
      const auto session = std::exchange(session_, {}).lock();
      if (session) session->addStream({std::move(stream), again_});
    }
    bool pushBack() override {
      const auto session = session_.lock();
      if (!session || session->hasRoom()) return false;
      session_.reset();
      session->onDeferred(std::move(question_), again_);
      return true;
    }

   private:
    std::weak_ptr<Session> session_;
    Question question_;
    bool again_;  // it has been deferred before
    bool sent_ = false;
  };

  WriteBudget& budget() const { return *service_.context_.write_budget; }
  Counters& counters() const { return service_.context_.counters; }

  // The connection is closed before the answers to these queries.
  void noteDropped() const { counters().dropped.add(resolve::DropReason::kTcpLimits, pending_ + deferred_.size()); }

  // For one more answer of any size.
  bool hasRoom() const {
    const auto room = budget().room(client_);
    const size_t queued = connection_->queued();
    if (room == WriteBudget::Room::kPlenty) return queued <= kMaxQueued;
    return room == WriteBudget::Room::kScarce && queued == 0;
  }

  void countQueued() {
    const size_t queued = connection_->queued();
    budget().change(client_, counted_, queued);
    if (counted_ == 0 && queued > 0) watch();
    counted_ = queued;
  }

  // From now on the client is to read.
  void watch() {
    if (!isWatched()) {
      taken_ = connection_->taken();
      taken_at_ = BootClock::now();
    }
    service_.watchReaders();
  }

  void onDeferred(Question question, bool again) {
    --pending_;
    if (again) waits_again_ = false;
    service_.context_.counters.tcp_deferred.add(1);
    watch();
    deferred_.push_back(std::move(question));
  }

  // One after the other, so that there is room for each answer when it comes.
  void answerDeferred() {
    std::vector<uint8_t> output;
    serving_ = true;
    while (!deferred_.empty() && !waits_again_ && connection_->isDrained() && hasRoom()) {
      const Question question = std::move(deferred_.front());
      deferred_.pop_front();
      answering_again_ = true;
      answer(question, output);
      answering_again_ = false;
      if (output.size() >= kWriteSize) write(output);
      service_.spend(kWorkOfQuery);
    }
    serving_ = false;
    if (!output.empty()) write(output);
  }

  void onLateAnswer(std::span<const uint8_t> message) {
    std::vector<uint8_t> output;
    append(message, output);
    write(output);
  }

  void addStream(Streaming stream) {
    watch();
    streams_.push_back(std::move(stream));
    postStreams();
  }

  // Not within an answer, and so that others have their turn between.
  void postStreams() {
    if (std::exchange(streams_posted_, true)) return;
    service_.context_.loop.post([weak = weak_from_this()] {
      if (const auto session = weak.lock()) session->sendStreams();
    });
  }

  // As much as is written at once.
  void sendStreams() {
    streams_posted_ = false;
    std::vector<uint8_t> output;
    while (!streams_.empty() && connection_->isDrained() && hasRoom() && output.size() < kWriteSize) {
      const auto size = streams_.front().messages->next(std::span(service_.message_).first(dns::kMaxMessageSize));
      if (!size) return reset();
      if (*size > 0) {
        append({service_.message_.data(), *size}, output);
        service_.spend(kWorkOfStreamed);
        continue;
      }
      const bool again = streams_.front().again;
      streams_.pop_front();
      if (!output.empty()) write(output);
      onReplyDone(again);
      return;
    }
    if (!output.empty()) write(output);
    if (!streams_.empty() && connection_->isDrained() && hasRoom()) postStreams();
  }

  void onReplyDone(bool again) {
    --pending_;
    if (again) waits_again_ = false;
    proceed();
  }

  bool isReady() {
    out_of_budget_ = budget().room(client_) == WriteBudget::Room::kNone;
    return connection_->isDrained() && connection_->queued() <= kMaxQueued && pending_ < kMaxPending &&
           deferred_.empty() && streams_.size() < kMostStreams && !out_of_budget_;
  }

  // Goes on where a full pipe or too many pending queries had stopped it.
  void proceed() {
    if (serving_) return;  // a handler that kept a client let it go at once
    if (!deferred_.empty()) answerDeferred();
    if (!streams_.empty()) postStreams();
    if (!ended_ && isReady()) connection_->resumeReading();
    if (!input_.empty()) return serveInput();
    closeIfDone();
  }

  void serveInput() {
    const size_t used = serve(input_);
    if (used == kBroken) return service_.close(*this);
    input_.erase(input_.begin(), input_.begin() + static_cast<ptrdiff_t>(used));
    if (input_.empty()) input_ = std::vector<uint8_t>();
    countInput();
    closeIfDone();
  }

  void countInput() {
    const size_t size = input_.capacity() + connection_->held();
    service_.input_bytes_ += size - input_counted_;  // wraps where it shrinks
    input_counted_ = size;
  }

  void closeIfDone() {
    if (ended_ && connection_->isDrained() && connection_->queued() == 0 && pending_ == 0 && deferred_.empty())
      service_.close(*this);
  }

  // Answers the whole queries at the front of `bytes`, unless the client falls behind. Returns the bytes used.
  size_t serve(std::span<const uint8_t> bytes) {
    std::vector<uint8_t> output;
    size_t used = 0;
    bool broken = false;
    serving_ = true;
    while (!broken && bytes.size() - used >= dns::kLengthPrefix && isReady()) {
      const size_t size = dns::load16(bytes.data() + used);
      if (size >= dns::kHeaderSize && bytes.size() - used - dns::kLengthPrefix < size) break;
      if (size < dns::kHeaderSize) counters().dropped.add(resolve::DropReason::kMalformed);
      broken = size < dns::kHeaderSize || !answer(bytes.subspan(used + dns::kLengthPrefix, size), output);
      used += dns::kLengthPrefix + size;
      if (output.size() >= kWriteSize) write(output);
      service_.spend(kWorkOfQuery);
    }
    serving_ = false;
    if (!output.empty()) write(output);
    if (broken) return kBroken;
    if (!isReady()) {
      connection_->pauseReading();
      if (out_of_budget_) watch();
    }
    if (used > 0) service_.touch(*this);
    return used;
  }

  // False for what is no query: the client does not speak DNS.
  bool answer(std::span<const uint8_t> query, std::vector<uint8_t>& output) {
    const resolve::QueryOutcome outcome = service_.answer(query, *this);
    if (outcome.kind == resolve::QueryOutcome::Kind::kAnswer) append({service_.message_.data(), outcome.size}, output);
    if (outcome.kind != resolve::QueryOutcome::Kind::kDrop) return true;
    counters().dropped.add(outcome.dropReason());
    if (!service_.carrier_.is_https) return false;
    connection_->cancel(dns::load16(query.data()));  // of one request; there may be others
    return true;
  }

  static void append(std::span<const uint8_t> message, std::vector<uint8_t>& output) {
    const size_t start = output.size();
    output.resize(start + dns::kLengthPrefix + message.size());
    dns::store16(output.data() + start, static_cast<uint16_t>(message.size()));
    std::copy(message.begin(), message.end(), output.begin() + static_cast<ptrdiff_t>(start + dns::kLengthPrefix));
  }

  void write(std::vector<uint8_t>& output) {
    if (!connection_->write(std::exchange(output, {}))) countQueued();
  }

  TcpService& service_;
  net::DescriptorLease lease_;  // given back when the connection is closed
  std::unique_ptr<net::BoundedStream> connection_;
  const WriteBudget::Client client_;
  std::vector<uint8_t> input_;     // the beginning of a query, or queries that wait for the client to read
  size_t input_counted_ = 0;       // its capacity and what the stream holds, as the service knows it
  size_t pending_ = 0;             // queries whose answers come later
  std::deque<Question> deferred_;  // whose answers there was no room for
  bool answering_again_ = false;   // one of them
  std::deque<Streaming> streams_;  // of pending queries, the first of which is being sent; kMostStreams at most
  bool streams_posted_ = false;
  bool waits_again_ = false;       // for the later answer to one of them
  bool out_of_budget_ = false;
  size_t counted_ = 0;  // bytes that the budget knows to be queued
  uint64_t taken_ = 0;  // by the kernel, when it last took anything, and when that was
  BootClock::time_point taken_at_{};
  bool has_shaken_hands_ = false;
  bool ended_ = false;
  bool serving_ = false;
};

TcpService::TcpService(WorkerContext& context, std::shared_ptr<const resolve::Router> router, Limits limits,
                       Carrier carrier)
    : context_(context),
      limits_(limits),
      carrier_(std::move(carrier)),
      router_(std::move(router)),
      idle_tick_(context.loop, [this] { closeIdle(); }),
      tick_(context.loop, [this] { onTick(); }),
      message_(dns::kMaxMessageSize + dns::kReadSlack) {}

TcpService::~TcpService() = default;

Result<std::unique_ptr<TcpService>> TcpService::listen(WorkerContext& context, const SocketAddress& address,
                                                       bool reuse_port, std::shared_ptr<const resolve::Router> router,
                                                       Limits limits, Carrier carrier) {
  std::unique_ptr<TcpService> service(new TcpService(context, std::move(router), limits, std::move(carrier)));
  auto listener = net::TcpListener::listen(context.loop, address, reuse_port,
                                           [s = service.get()](auto connection) { s->accept(std::move(connection)); });
  if (!listener) return tl::unexpected(listener.error());
  service->listener_ = std::move(*listener);
  return service;
}

std::unique_ptr<TcpService> TcpService::adopt(WorkerContext& context, FileDescriptor listening,
                                              std::shared_ptr<const resolve::Router> router, Limits limits,
                                              Carrier carrier) {
  std::unique_ptr<TcpService> service(new TcpService(context, std::move(router), limits, std::move(carrier)));
  service->listener_ = net::TcpListener::adopt(
      context.loop, std::move(listening), [s = service.get()](auto connection) { s->accept(std::move(connection)); });
  return service;
}

void TcpService::spend(size_t work) {
  work_since_udp_ += work;
  if (work_since_udp_ < kWorkBeforeUdp) return;
  work_since_udp_ = 0;
  UdpService::serveWaiting(context_);
}

std::unique_ptr<net::BoundedStream> TcpService::streamOver(std::unique_ptr<net::TcpConnection> connection) const {
  if (!carrier_.tls) return connection;
  const std::string_view protocol = carrier_.is_https ? net::kHttp2Protocol : kDnsOverTls;
  auto tls = std::make_unique<net::TlsStream>(*carrier_.tls, protocol, std::move(connection));
  if (!carrier_.is_https) return tls;
  return std::make_unique<HttpsStream>(std::move(tls));
}

void TcpService::accept(std::unique_ptr<net::TcpConnection> connection) {
  spend(kWorkOfAccept);
  const auto session = std::make_shared<Session>(*this, streamOver(std::move(connection)));
  if (!makeRoom(*session)) return context_.counters.tcp_refused.add(1);
  auto lease = context_.descriptors->lease(net::DescriptorUse::kClient);
  while (!lease && evict(context_.clients.toGiveWay(*session))) {
    lease = context_.descriptors->lease(net::DescriptorUse::kClient);
  }
  if (!lease) return context_.counters.tcp_refused.add(1);
  context_.counters.tcp_accepted.add(1);
  if (sessions_.empty() && new_sessions_.empty()) {
    const auto shortest = std::min(limits_.of_clients.idle, limits_.of_clients.firstTime());
    const auto tick = std::min(kTick, shortest / kShortestIdlePart);
    idle_tick_.start(tick, tick);
  }
  session->idle_since = BootClock::now();
  session->in = &new_sessions_;
  session->position = new_sessions_.insert(new_sessions_.end(), session);
  session->start(std::move(lease));
}

// Within the numbers of connections, which `newcomer` is counted among. False: nothing can give way.
bool TcpService::makeRoom(Session& newcomer) {
  ClientConnections& clients = context_.clients;
  const size_t most = ClientConnections::isOneClient(newcomer.connection().remote().ip)
                          ? limits_.of_clients.max_per_client
                          : std::numeric_limits<size_t>::max();
  while (newcomer.countOfClient() > most) {
    if (!evict(clients.longestIdleOfSame(newcomer))) return false;
  }
  while (clients.size() > limits_.max_connections) {
    if (!evict(clients.toGiveWay(newcomer))) return false;
  }
  return true;
}

bool TcpService::evict(ClientConnections::Connection* connection) {
  if (connection == nullptr) return false;
  context_.counters.tcp_evicted.add(1);
  static_cast<Session*>(connection)->close();  // of whichever listener
  return true;
}

TcpService::Crowd TcpService::crowd() const {
  const size_t room = std::min(limits_.max_connections, context_.descriptors->maxIdle());
  const size_t used = context_.clients.size();
  if (used <= room / 2) return Crowd::kFew;
  return used <= room - room / 4 ? Crowd::kMany : Crowd::kTooMany;
}

// The idle time-out at the moment: shorter while there are many connections (RFC 7766 §6.2.3).
std::chrono::milliseconds TcpService::shortened(std::chrono::milliseconds timeout) const {
  switch (crowd()) {
    case Crowd::kFew:
      return timeout;
    case Crowd::kMany:
      return timeout / kShortIdlePart;
    case Crowd::kTooMany:
      break;
  }
  return timeout / kShortestIdlePart;
}

// RFC 7828 §3.3.2: the time-out as it is; 0 asks the client to close.
void TcpService::noteKeepalive() {
  dns::Query& query = job_.query;
  if (query.asksFor(dns::kMisusesKeepalive)) {
    if (job_.outcome == dns::ParseOutcome::kQuery) resolve::Router::reject(job_, dns::Rcode::kFormErr);
    return;
  }
  if (!query.asksFor(dns::kAsksKeepalive)) return;
  const auto units = crowd() == Crowd::kTooMany ? 0 : idleTimeout() / kKeepaliveUnit;
  query.idle_timeout = static_cast<uint16_t>(std::min<int64_t>(units, std::numeric_limits<uint16_t>::max()));
  query.asked_options |= dns::kTellsKeepalive;
}

void TcpService::notePadding() {
  if (carrier_.tls && job_.query.asksFor(dns::kAsksPadding)) job_.query.asked_options |= dns::kPads;
}

void TcpService::closeIdle() {
  closeIdle(new_sessions_, limits_.of_clients.firstTime());
  closeIdle(sessions_, limits_.of_clients.idle);
  if (sessions_.empty() && new_sessions_.empty()) idle_tick_.stop();
}

// `timeout` where there are few connections.
void TcpService::closeIdle(const Sessions& sessions, std::chrono::milliseconds timeout) {
  const auto now = BootClock::now();
  while (!sessions.empty()) {
    Session& session = *sessions.front();
    if (now - session.idle_since < shortened(timeout)) return;
    if (session.isBusy()) {
      touch(session);
      continue;
    }
    context_.counters.tcp_timed_out.add(1);
    close(session);
  }
}

// Closes those with the most unfinished input, the longest idle first. A query comes whole, or almost, so this hits
// slow clients only.
void TcpService::boundInput() {
  while (input_bytes_ > limits_.max_input) {
    const auto largest = largestInput();
    if (!largest) return;
    context_.counters.tcp_evicted.add(1);
    largest->reset();
  }
}

std::shared_ptr<TcpService::Session> TcpService::largestInput() const {
  std::shared_ptr<Session> largest;
  for (const Sessions* sessions : {&sessions_, &new_sessions_}) {
    for (const auto& session : *sessions) {
      if (!largest || session->input() > largest->input()) largest = session;
    }
  }
  return largest;
}

void TcpService::watchReaders() {
  if (std::exchange(ticking_, true)) return;
  const auto tick = std::min(kTick, limits_.of_clients.writeTime());
  tick_.start(tick, tick);
}

// Closes the sessions of clients that do not read, and continues those for which there was no room.
void TcpService::onTick() {
  const auto now = BootClock::now();
  std::vector<std::weak_ptr<Session>> watched;  // one that goes on may end another
  for (const Sessions* sessions : {&sessions_, &new_sessions_}) {
    for (const auto& session : *sessions) {
      if (session->isWatched()) watched.push_back(session);
    }
  }
  for (const auto& weak : watched) {
    if (const auto session = weak.lock()) session->onTick(now);
  }
  if (!watched.empty()) return;
  ticking_ = false;
  tick_.stop();
}

void TcpService::touch(Session& session) {
  session.noteUse();
  session.idle_since = BootClock::now();
  sessions_.splice(sessions_.end(), *session.in, session.position);
  session.in = &sessions_;
}

void TcpService::close(Session& session) {
  session.leave();
  session.in->erase(session.position);
}

resolve::QueryOutcome TcpService::answer(std::span<const uint8_t> query, Session& session) {
  context_.counters.tcp_received.add(1);
  std::copy(query.begin(), query.end(), message_.begin());
  sockaddr_storage source;
  session.connection().remote().toSockaddr(&source);
  resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&source),
                           .local = &session.connection().local(),
                           .transport = resolve::Transport::kTcp,
                           .response_limit = dns::kMaxMessageSize,
                           .now = BootClock::now(),
                           .deferrer = &session,
                           .router = router_.get(),
                           .is_again = session.isAnsweringAgain(),
                           .one_message = carrier_.is_https,
                           .samples = router_->samples()};
  const records::ReadSection section(context_.reader);
  router_->begin(job_, message_.data(), query.size());
  noteKeepalive();
  notePadding();
  const resolve::Router& router = *router_;
  const resolve::QueryOutcome outcome = router.answer(job_, request);
  resolve::BatchCounts counts{.queries = request.is_again ? 0U : 1U};
  if (outcome.kind == resolve::QueryOutcome::Kind::kAnswer) counts.addAnswer(message_.data());
  router.onBatchDone({&job_, 1}, counts, request.now);
  return outcome;
}

}  // namespace idetcd::server
