#include "server/tcp_service.h"

#include <algorithm>
#include <deque>
#include <sys/resource.h>
#include <utility>

#include "dns/response.h"
#include "dns/wire.h"
#include "server/udp_service.h"

namespace idetcd::server {

namespace {

constexpr size_t kPrefix = 2;  // the length in front of a message
// Answers are collected up to this much before they are written, so that pipelined queries share a system call.
constexpr size_t kWriteSize = size_t{64} << 10;
// After so much work (some 50 us) those who ask over UDP have their turn.
constexpr size_t kWorkBeforeUdp = 64;
constexpr size_t kWorkOfQuery = 1;
constexpr size_t kWorkOfAccept = 8;
constexpr std::chrono::milliseconds kTick{250};

// The question of a query, and what else of it an answer depends on.
std::vector<uint8_t> copyQuestion(const dns::Query& query) {
  constexpr size_t kNsidOption = 4;
  const size_t options = query.wants_nsid ? kNsidOption : 0;
  std::vector<uint8_t> copy(query.question_end + (query.has_edns ? dns::kOptSize + options : 0));
  std::copy_n(query.message, query.question_end, copy.begin());
  dns::store64(&copy[4], uint64_t{1} << 48 | (query.has_edns ? 1 : 0));  // one question, OPT
  if (query.has_edns) {
    uint8_t* opt = &copy[query.question_end];
    dns::storeOpt(opt, 0, query.dnssec_ok);
    dns::store16(opt + 9, static_cast<uint16_t>(options));
    if (options > 0) dns::store32(opt + dns::kOptSize, uint32_t{dns::code(dns::EdnsOption::kNsid)} << 16);
  }
  return copy;
}

// Clients of one listener never take all descriptors: upstreams and etcd need some, and so do other listeners.
TcpService::Limits withinDescriptors(TcpService::Limits limits) {
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur != RLIM_INFINITY) {
    limits.max_connections = std::min<size_t>(limits.max_connections, std::max<rlim_t>(descriptors.rlim_cur / 8, 1));
  }
  return limits;
}

}  // namespace

class TcpService::Session : public net::TcpHandler,
                            public resolve::ClientKeeper,
                            public std::enable_shared_from_this<TcpService::Session> {
 public:
  Session(TcpService& service, std::unique_ptr<net::TcpConnection> connection)
      : service_(service),
        connection_(std::move(connection)),
        client_(WriteBudget::clientOf(connection_->remote().ip)),
        idle_(service.context_.loop, [this] { onIdle(); }) {}
  ~Session() override { budget().change(client_, counted_, 0); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void start() {
    idle_.start(service_.limits_.idle);
    connection_->start(*this);
  }

  void onData(std::span<const uint8_t> octets) override {
    if (input_.empty()) {  // the common case: whole queries, answered from the read buffer
      const size_t used = serve(octets);
      if (used == kBroken) return service_.close(*this);
      input_.assign(octets.begin() + static_cast<ptrdiff_t>(used), octets.end());
    } else {
      input_.insert(input_.end(), octets.begin(), octets.end());
      serveInput();
    }
  }

  void onEnd() override {
    ended_ = true;
    closeIfDone();
  }

  void onDrained() override {
    countQueued();
    proceed();
  }

  void onError() override { service_.close(*this); }

  std::unique_ptr<resolve::ReplySink> keepClient() override {
    ++pending_;
    const bool again = std::exchange(answering_again_, false);
    if (again) waits_again_ = true;
    return std::make_unique<Sink>(weak_from_this(), copyQuestion(service_.job_.query), again);
  }

  bool isWatched() const { return counted_ > 0 || !deferred_.empty() || out_of_budget_; }
  // Closes the connection if the client does not read.
  void onTick(BootClock::time_point now) {
    countQueued();
    const uint64_t taken = connection_->taken();
    if (taken != taken_ || counted_ == 0) {
      taken_ = taken;
      taken_at_ = now;
    }
    const bool scarce = budget().room(client_) != WriteBudget::Room::kPlenty;
    const auto patience = scarce ? std::min(kScarceStall, service_.limits_.idle) : service_.limits_.idle;
    if (now - taken_at_ >= patience) {
      service_.context_.counters.tcp_stalled.add(1);
      return service_.close(*this);
    }
    if (counted_ == 0) proceed();
  }

  const net::TcpConnection& connection() const { return *connection_; }

  Sessions::iterator position;

 private:
  static constexpr size_t kBroken = SIZE_MAX;

  using Question = std::vector<uint8_t>;

  // A later answer. The session may have gone by then; if there is no answer, it waits for one less.
  class Sink : public resolve::ReplySink {
   public:
    Sink(std::weak_ptr<Session> session, Question question, bool again)
        : session_(std::move(session)), question_(std::move(question)), again_(again) {}
    ~Sink() override { finish({}); }
    void send(std::span<const uint8_t> message) override { finish(message); }
    bool defer() override {
      const auto session = session_.lock();
      if (!session || session->hasRoom()) return false;
      session_.reset();
      session->onDeferred(std::move(question_), again_);
      return true;
    }

   private:
    void finish(std::span<const uint8_t> message) {
      if (const auto session = std::exchange(session_, {}).lock()) session->onLateAnswer(message, again_);
    }
    std::weak_ptr<Session> session_;
    Question question_;
    bool again_;  // it has been deferred before
  };

  WriteBudget& budget() const { return *service_.context_.write_budget; }

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

  void onLateAnswer(std::span<const uint8_t> message, bool again) {
    --pending_;
    if (again) waits_again_ = false;
    if (!message.empty()) {
      std::vector<uint8_t> output;
      append(message, output);
      write(output);
    }
    proceed();
  }

  void onIdle() {
    // It is the upstream that is slow; or the client, which onTick() sees to.
    if (pending_ > 0 || isWatched()) return idle_.start(service_.limits_.idle);
    service_.context_.counters.tcp_timed_out.add(1);
    service_.close(*this);
  }

  bool isReady() {
    out_of_budget_ = budget().room(client_) == WriteBudget::Room::kNone;
    return connection_->isDrained() && pending_ < service_.limits_.max_pending && deferred_.empty() && !out_of_budget_;
  }

  // Goes on where a full pipe or too many pending queries had stopped it.
  void proceed() {
    if (serving_) return;  // a handler that kept a client let it go at once
    if (!deferred_.empty()) answerDeferred();
    if (!ended_ && isReady()) connection_->resumeReading();
    if (!input_.empty()) return serveInput();
    closeIfDone();
  }

  void serveInput() {
    const size_t used = serve(input_);
    if (used == kBroken) return service_.close(*this);
    input_.erase(input_.begin(), input_.begin() + static_cast<ptrdiff_t>(used));
    closeIfDone();
  }

  void closeIfDone() {
    if (ended_ && connection_->isDrained() && pending_ == 0 && deferred_.empty()) service_.close(*this);
  }

  // Answers every whole query at the front of `octets`, unless the client falls behind. Returns how many octets it
  // used.
  size_t serve(std::span<const uint8_t> octets) {
    std::vector<uint8_t> output;
    size_t used = 0;
    bool broken = false;
    serving_ = true;
    while (!broken && octets.size() - used >= kPrefix && isReady()) {
      const size_t size = dns::load16(octets.data() + used);
      if (size >= dns::kHeaderSize && octets.size() - used - kPrefix < size) break;
      broken = size < dns::kHeaderSize || !answer(octets.subspan(used + kPrefix, size), output);
      used += kPrefix + size;
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
    if (used > 0) {
      idle_.start(service_.limits_.idle);
      service_.touch(*this);
    }
    return used;
  }

  // False for what is no query: whoever this is, it does not speak DNS.
  bool answer(std::span<const uint8_t> query, std::vector<uint8_t>& output) {
    const resolve::Outcome outcome = service_.answer(query, *this);
    if (outcome.kind == resolve::Outcome::Kind::kAnswer) append({service_.message_.data(), outcome.size}, output);
    return outcome.kind != resolve::Outcome::Kind::kDrop;
  }

  static void append(std::span<const uint8_t> message, std::vector<uint8_t>& output) {
    const size_t start = output.size();
    output.resize(start + kPrefix + message.size());
    dns::store16(output.data() + start, static_cast<uint16_t>(message.size()));
    std::copy(message.begin(), message.end(), output.begin() + static_cast<ptrdiff_t>(start + kPrefix));
  }

  void write(std::vector<uint8_t>& output) {
    if (!connection_->write(std::exchange(output, {}))) countQueued();
  }

  TcpService& service_;
  std::unique_ptr<net::TcpConnection> connection_;
  const WriteBudget::Client client_;
  net::Timer idle_;
  std::vector<uint8_t> input_;     // the beginning of a query, or queries that wait for the client to read
  size_t pending_ = 0;             // queries whose answers come later
  std::deque<Question> deferred_;  // whose answers there was no room for
  bool answering_again_ = false;   // one of them
  bool waits_again_ = false;       // for the later answer to one of them
  bool out_of_budget_ = false;
  size_t counted_ = 0;  // bytes that the budget knows to be queued
  uint64_t taken_ = 0;  // by the kernel, when it last took anything, and when that was
  BootClock::time_point taken_at_{};
  bool ended_ = false;
  bool serving_ = false;
};

TcpService::TcpService(WorkerContext& context, std::shared_ptr<const resolve::Resolver> resolver, Limits limits)
    : context_(context),
      limits_(withinDescriptors(limits)),
      resolver_(std::move(resolver)),
      tick_(context.loop, [this] { onTick(); }),
      message_(dns::kMaxMessageSize + dns::kReadSlack) {}

TcpService::~TcpService() = default;

Result<std::unique_ptr<TcpService>> TcpService::listen(WorkerContext& context, const SocketAddress& address,
                                                       bool reuse_port,
                                                       std::shared_ptr<const resolve::Resolver> resolver,
                                                       Limits limits) {
  std::unique_ptr<TcpService> service(new TcpService(context, std::move(resolver), limits));
  auto listener = net::TcpListener::listen(context.loop, address, reuse_port,
                                           [s = service.get()](auto connection) { s->accept(std::move(connection)); });
  if (!listener) return tl::unexpected(listener.error());
  service->listener_ = std::move(*listener);
  return service;
}

void TcpService::spend(size_t work) {
  work_since_udp_ += work;
  if (work_since_udp_ < kWorkBeforeUdp) return;
  work_since_udp_ = 0;
  UdpService::serveWaiting(context_);
}

void TcpService::accept(std::unique_ptr<net::TcpConnection> connection) {
  spend(kWorkOfAccept);
  if (sessions_.size() >= limits_.max_connections) {
    context_.counters.tcp_evicted.add(1);
    close(*sessions_.front());
  }
  context_.counters.tcp_accepted.add(1);
  sessions_.push_back(std::make_shared<Session>(*this, std::move(connection)));
  sessions_.back()->position = std::prev(sessions_.end());
  sessions_.back()->start();
}

void TcpService::watchReaders() {
  if (std::exchange(ticking_, true)) return;
  tick_.start(std::min(kTick, limits_.idle), std::min(kTick, limits_.idle));
}

// Closes the sessions of those who do not read, and goes on with those for whom there was no room.
void TcpService::onTick() {
  const auto now = BootClock::now();
  std::vector<std::weak_ptr<Session>> watched;  // one that goes on may end another
  for (const auto& session : sessions_) {
    if (session->isWatched()) watched.push_back(session);
  }
  for (const auto& weak : watched) {
    if (const auto session = weak.lock()) session->onTick(now);
  }
  if (!watched.empty()) return;
  ticking_ = false;
  tick_.stop();
}

void TcpService::touch(Session& session) { sessions_.splice(sessions_.end(), sessions_, session.position); }

void TcpService::close(Session& session) { sessions_.erase(session.position); }

resolve::Outcome TcpService::answer(std::span<const uint8_t> query, Session& session) {
  context_.counters.tcp_received.add(1);
  std::copy(query.begin(), query.end(), message_.begin());
  sockaddr_storage source;
  session.connection().remote().toSockaddr(&source);
  const resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&source),
                                 .local = &session.connection().local(),
                                 .transport = resolve::Transport::kTcp,
                                 .response_limit = dns::kMaxMessageSize,
                                 .now = BootClock::now(),
                                 .client = &session};
  const records::ReadSection section(context_.reader);
  resolver_->begin(job_, message_.data(), query.size());
  return resolver_->answer(job_, request);
}

}  // namespace idetcd::server
