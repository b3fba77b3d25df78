#include "resolver/stream_pool.h"

#include <unordered_map>

#include "dns/wire.h"
#include "resolver/upstream_cookie.h"

namespace idetcd::resolver {

namespace {

constexpr std::chrono::milliseconds kKeepaliveUnit{100};  // RFC 7828 §3.1
// So much before the server would close it: a question may be on its way for as long.
constexpr std::chrono::milliseconds kEarlyClose{500};

}  // namespace

class StreamPool::Connection : public net::StreamHandler, public std::enable_shared_from_this<StreamPool::Connection> {
 public:
  Connection(StreamPool& pool, std::unique_ptr<net::Stream> stream)
      : pool_(&pool),
        stream_(std::move(stream)),
        opened_at_(BootClock::now()),
        idle_timeout_(pool.options_.expire),
        idle_(pool.loop_, [this] { close(); }) {}

  void start() { stream_->start(*this); }

  size_t waiting() const { return waiters_.size(); }
  bool isSuspect() const { return stream_ == nullptr || suspect_; }
  bool isUsable() const { return !isSuspect() && !unwanted_ && !isOld() && stream_->takesMore(); }
  BootClock::time_point openedAt() const { return opened_at_; }
  bool isProven(BootClock::time_point since) const { return std::max(opened_at_, heard_at_) >= since; }
  bool isWaitedFor(uint16_t id) const { return waiters_.contains(id); }

  uint16_t send(std::span<const uint8_t> message, StreamWaiter& waiter) {
    uint16_t id = pool_->random_.next16();
    while (waiters_.contains(id)) id = pool_->random_.next16();  // ends: there are far fewer waiters than IDs
    waiters_.emplace(id, Waiting{&waiter, messages_});
    idle_.stop();
    std::vector<uint8_t> framed(dns::kLengthPrefix + message.size());
    dns::store16(framed.data(), static_cast<uint16_t>(message.size()));
    std::copy(message.begin(), message.end(), framed.begin() + dns::kLengthPrefix);
    dns::store16(framed.data() + dns::kLengthPrefix, id);
    stream_->write(std::move(framed));
    return id;
  }

  void drop(uint16_t id) {
    if (waiters_.erase(id) == 0) return;
    if (stream_ != nullptr) stream_->cancel(id);
    if (waiters_.empty()) onIdle();
  }

  void noteLate(uint16_t id) {
    const auto waiting = waiters_.find(id);
    // If nothing at all has come since, it is not the one question that is hard.
    if (waiting != waiters_.end() && waiting->second.messages_before == messages_) suspect_ = true;
  }

  // Closes it to make room. Its questions are asked again by their waiters, once the loop is back.
  void giveWay() {
    net::EventLoop& loop = pool_->loop_;
    std::exchange(pool_, nullptr)->remove(*this);
    stream_.reset();
    idle_.stop();
    if (waiters_.empty()) return;
    loop.post([self = shared_from_this()] { self->tellAll("gave way to another connection", true); });
  }

  // The pool is gone.
  void orphan() {
    pool_ = nullptr;
    waiters_.clear();
    stream_.reset();
  }

  void onData(std::span<const uint8_t> bytes) override {
    const auto self = shared_from_this();
    if (input_.empty()) {  // the common case: whole answers, read where they are
      const size_t used = deliver(bytes);
      if (stream_ != nullptr) input_.assign(bytes.begin() + static_cast<ptrdiff_t>(used), bytes.end());
    } else {
      input_.insert(input_.end(), bytes.begin(), bytes.end());
      std::vector<uint8_t> input = std::exchange(input_, {});
      const size_t used = deliver(input);
      input.erase(input.begin(), input.begin() + static_cast<ptrdiff_t>(used));
      if (stream_ != nullptr) input_ = std::move(input);
    }
  }
  void onEnd() override {
    if (messages_ > 0 && !waiters_.empty()) pool_->noteEarlyEnd(*this);  // it has answered some of what it was asked
    fail("connection closed");
  }
  void onDrained() override {}
  void onError() override { fail(stream_->failure()); }
  void onUnanswered(uint16_t id, const std::string& reason, bool worth_another_try) override {
    const auto waiting = waiters_.find(id);
    if (waiting == waiters_.end()) return;
    const auto self = shared_from_this();
    heard_at_ = BootClock::now();
    StreamWaiter* waiter = waiting->second.waiter;
    waiters_.erase(waiting);
    if (waiters_.empty()) onIdle();
    waiter->onStreamFailed(reason, worth_another_try);
  }

 private:
  // Hands out every whole message at the front of `bytes`. Returns how many bytes it used.
  size_t deliver(std::span<const uint8_t> bytes) {
    size_t used = 0;
    while (stream_ != nullptr && bytes.size() - used >= dns::kLengthPrefix) {
      const size_t size = dns::load16(bytes.data() + used);
      if (size < dns::kHeaderSize) {  // whatever this is, it is not DNS
        fail("not a DNS message");
        break;
      }
      if (bytes.size() - used - dns::kLengthPrefix < size) break;
      const auto message = bytes.subspan(used + dns::kLengthPrefix, size);
      used += dns::kLengthPrefix + size;
      ++messages_;
      heard_at_ = BootClock::now();
      noteKeepalive(message);
      const auto waiter = waiters_.find(dns::load16(message.data()));
      if (waiter != waiters_.end()) waiter->second.waiter->onStreamMessage(message);
    }
    return used;
  }

  // RFC 7828 §3.2.2
  void noteKeepalive(std::span<const uint8_t> message) {
    const auto units = optionsOf(message).idle_timeout;
    if (!units) return;
    const auto said = *units * kKeepaliveUnit;
    unwanted_ = *units == 0;
    idle_timeout_ = std::min(pool_->options_.expire, said - std::min(kEarlyClose, said / 2));
  }

  void onIdle() {
    if (pool_ == nullptr || stream_ == nullptr) return;
    // Not at once: this may be a callback of the stream.
    const bool is_kept = !suspect_ && !isOld() && stream_->takesMore() && !pool_->hasTooManyIdle();
    idle_.start(is_kept ? idle_timeout_ : std::chrono::milliseconds(0));
  }

  bool isOld() const {
    const auto max_age = pool_->options_.max_age;
    return max_age.count() > 0 && BootClock::now() - opened_at_ >= max_age;
  }

  void close() { fail("idle"); }

  void fail(const std::string& reason) {
    if (pool_ == nullptr) return;
    const auto self = shared_from_this();
    std::exchange(pool_, nullptr)->remove(*this);
    stream_.reset();
    tellAll(reason, messages_ > 0);
  }

  void tellAll(const std::string& reason, bool try_again) {
    const auto self = shared_from_this();
    // Each call may drop other waiters' tickets, but no longer finds them here: take one at a time.
    while (!waiters_.empty()) {
      StreamWaiter* waiter = waiters_.begin()->second.waiter;
      waiters_.erase(waiters_.begin());
      waiter->onStreamFailed(reason, try_again);
    }
  }

  struct Waiting {
    StreamWaiter* waiter;
    uint64_t messages_before;
  };

  StreamPool* pool_;
  std::unique_ptr<net::Stream> stream_;  // null: closed
  const BootClock::time_point opened_at_;
  std::chrono::milliseconds idle_timeout_;
  net::Timer idle_;
  std::unordered_map<uint16_t, Waiting> waiters_;
  std::vector<uint8_t> input_;  // the beginning of a message
  uint64_t messages_ = 0;       // received
  BootClock::time_point heard_at_{};
  bool suspect_ = false;
  bool unwanted_ = false;  // the server would rather have it closed
};

StreamPool::Ticket& StreamPool::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  drop();
  connection_ = std::exchange(other.connection_, {});
  id_ = other.id_;
  return *this;
}

void StreamPool::Ticket::drop() {
  if (const auto connection = std::exchange(connection_, {}).lock()) connection->drop(id_);
}

void StreamPool::Ticket::noteLate() {
  if (const auto connection = connection_.lock()) connection->noteLate(id_);
}

bool StreamPool::Ticket::isLate() const {
  const auto connection = connection_.lock();
  return connection && connection->isSuspect();
}

bool StreamPool::Ticket::isWaiting() const {
  const auto connection = connection_.lock();
  return connection && connection->isWaitedFor(id_);
}

bool StreamPool::Ticket::isSilentSince(BootClock::time_point when) const {
  const auto connection = connection_.lock();
  return connection && !connection->isProven(when);
}

StreamPool::StreamPool(net::EventLoop& loop, SecureRandom& random, Options options, Connect connect)
    : loop_(loop),
      random_(random),
      options_(options),
      connect_(std::move(connect)),
      pipelined_(options.preferred_pipelined) {}

StreamPool::~StreamPool() {
  for (const auto& connection : connections_) connection->orphan();
}

Result<uint16_t> StreamPool::send(std::span<const uint8_t> message, StreamWaiter& waiter, Ticket& ticket,
                                  BootClock::time_point proven) {
  ticket.drop();
  const auto connection = choose(proven);
  if (!connection) return tl::unexpected(connection.error());
  ticket.id_ = (*connection)->send(message, waiter);
  ticket.connection_ = *connection;
  return ticket.id_;
}

// The connection with the least to do, or a new one if that has much. Of more connections than the questions need, the
// oldest: the others fall idle and are closed.
Result<std::shared_ptr<StreamPool::Connection>> StreamPool::choose(BootClock::time_point proven) {
  const size_t preferred = pipelined();
  size_t questions = 1;
  for (const auto& connection : connections_) questions += connection->waiting();
  const size_t needed = (questions + preferred - 1) / preferred;
  std::shared_ptr<Connection> best;
  size_t seen = 0;
  for (const auto& connection : connections_) {
    if (!connection->isUsable() || !connection->isProven(proven)) continue;
    if (!best || connection->waiting() < best->waiting()) best = connection;
    if (++seen >= needed && best->waiting() < preferred) break;
  }
  const size_t load = best ? best->waiting() : kMaxPipelined;
  if (best && load < preferred) return best;
  if (connections_.size() < options_.max_connections) {
    auto opened = open();
    if (opened || load >= kMaxPipelined) return opened;
  }
  if (load >= kMaxPipelined) return fail("too many questions on too many connections");
  return best;
}

Result<std::shared_ptr<StreamPool::Connection>> StreamPool::open() {
  auto stream = connect_();
  if (!stream) return tl::unexpected(stream.error());
  connections_.push_back(std::make_shared<Connection>(*this, std::move(*stream)));
  connections_.back()->start();
  return connections_.back();
}

bool StreamPool::closeIdle() {
  const auto idle = std::find_if(connections_.begin(), connections_.end(),
                                 [](const auto& connection) { return connection->waiting() == 0; });
  if (idle == connections_.end()) return false;
  const auto connection = *idle;
  connection->giveWay();
  return true;
}

void StreamPool::closeOne() {
  const auto least = std::min_element(connections_.begin(), connections_.end(),
                                      [](const auto& a, const auto& b) { return a->waiting() < b->waiting(); });
  if (least == connections_.end()) return;
  const auto connection = *least;
  connection->giveWay();
}

void StreamPool::noteEarlyEnd(const Connection& connection) {
  if (connection.openedAt() <= early_end_) return;  // the same event: a restart closes all at once
  const auto now = BootClock::now();
  const bool is_repeated = pipelined_ < options_.preferred_pipelined || now - early_end_ < options_.relax;
  early_end_ = now;
  if (is_repeated) pipelined_ = 1;
}

// This moment's among them.
bool StreamPool::hasTooManyIdle() const {
  const auto idle = std::count_if(connections_.begin(), connections_.end(),
                                  [](const auto& connection) { return connection->waiting() == 0; });
  return options_.max_idle > 0 && static_cast<size_t>(idle) > options_.max_idle;
}

size_t StreamPool::pipelined() {
  if (pipelined_ == options_.preferred_pipelined) return pipelined_;
  const auto now = BootClock::now();
  if (now - early_end_ < options_.relax) return pipelined_;
  pipelined_ = std::min(pipelined_ * 2, options_.preferred_pipelined);
  early_end_ = now;
  return pipelined_;
}

void StreamPool::remove(Connection& connection) {
  std::erase_if(connections_, [&connection](const auto& other) { return other.get() == &connection; });
}

}  // namespace idetcd::resolver
