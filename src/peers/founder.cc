#include "peers/founder.h"

#include <list>
#include <netdb.h>
#include <thread>

#include "base/file.h"
#include "net/tcp.h"
#include "net/udp_socket.h"

namespace idetcd::peers {

namespace {

using founding::Elector;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Time = BootClock::time_point;

constexpr size_t kMaxIncoming = 16;  // connections; each may hold a frame
constexpr size_t kMaxOutgoing = 256;
constexpr milliseconds kMostPutOff{500};    // of what is due, by datagrams
constexpr seconds kWayPatience{5};  // for a way to an address, after the start: an address of this machine, a route
constexpr seconds kConnectionPatience{10};  // for a connection to bring or take its frame
constexpr seconds kSecond{1};
constexpr seconds kResolveInterval{5};
constexpr seconds kMembersResolveInterval{60};
constexpr seconds kSayInterval{10};  // between two lines that say how far it is

// "192.0.2.1", "192.0.2.1:53", "2001:db8::1", "[2001:db8::1]:53"; none: something else.
std::optional<SocketAddress> parseAddress(std::string_view word, uint16_t port) {
  if (const auto ip = IpAddress::parse(word)) return SocketAddress{*ip, port};
  return SocketAddress::parse(word);
}

bool mayBeHostName(std::string_view word) {
  return !word.empty() && word.size() <= 253 && word.find_first_not_of("0123456789.") != std::string_view::npos &&
         std::ranges::all_of(word, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
                  c == '_';
         });
}

// May take as long as a resolver does.
Result<std::vector<SocketAddress>> lookUp(const std::string& name, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0)
    return fail(gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (auto address = SocketAddress::fromSockaddr(one->ai_addr)) {
      address->port = port;
      addresses.push_back(*address);
    }
  }
  freeaddrinfo(found);
  return addresses;
}

// From that address of this machine.
bool mayReach(const SocketAddress& own, const SocketAddress& to) {
  return own.ip.family() == to.ip.family() && own.ip.isLoopback() == to.ip.isLoopback();
}

struct Dropped {
  explicit Dropped(const metrics::Scope& scope)
      : counter(scope, "idetcd_peers_dropped_total", "Messages at the peers port that were dropped, by reason.") {}
  metrics::Counter counter;
};

}  // namespace

Result<Meeting> Meeting::parse(std::span<const std::string> words, uint16_t port) {
  Meeting meeting;
  for (const std::string& word : words) {
    if (const auto address = parseAddress(word, port)) {
      meeting.addresses.push_back(*address);
    } else if (const auto network = IpNetwork::parse(word)) {
      const auto addresses = founding::Hello::addressesOf(*network, port);
      if (!addresses) return fail(fmt::format("{}: {}", word, addresses.error().message));
      meeting.addresses.insert(meeting.addresses.end(), addresses->begin(), addresses->end());
    } else if (mayBeHostName(word)) {
      meeting.names.push_back(word);
    } else {
      return fail(fmt::format("not a host name, an address or a network: '{}'", word));
    }
  }
  if (meeting.addresses.size() > founding::kMaxMachines)
    return fail(fmt::format("{} addresses, at most {} can be asked", meeting.addresses.size(), founding::kMaxMachines));
  return meeting;
}

struct Founder::Impl : std::enable_shared_from_this<Founder::Impl> {
  // One frame each way at most: what comes is answered over a connection of its own.
  struct Connection final : net::StreamHandler {
    Connection(Impl& impl, std::unique_ptr<net::TcpConnection> connection, bool is_incoming)
        : owner(impl), tcp(std::move(connection)), incoming(is_incoming) {}
    void onData(std::span<const uint8_t> bytes) override { owner.receive(*this, bytes); }
    void onEnd() override { owner.close(*this); }
    void onDrained() override {
      if (!incoming) owner.close(*this);
    }
    void onError() override { owner.close(*this); }

    Impl& owner;
    const std::unique_ptr<net::TcpConnection> tcp;
    const bool incoming;
    const Time began = BootClock::now();
    std::string received;
  };
  struct Listener {
    SocketAddress address;
    net::UdpSocket udp;
    std::unique_ptr<net::TcpListener> tcp;
    std::unique_ptr<net::ReadWatcher> watcher;
  };
  // All that belongs to the loop's thread and has to go before the loop.
  struct Handles {
    Handles(net::EventLoop& loop, Impl& impl)
        : connector(loop), tick(loop, [&impl] { impl.advance(); }), each_second(loop, [&impl] { impl.look(); }) {}
    net::TcpConnector connector;
    std::vector<Listener> listeners;
    std::list<Connection> connections;
    net::UdpBatch batch;
    net::Timer tick;
    net::Timer each_second;
  };

  Impl(Options founder_options, Logger logger) : options(std::move(founder_options)), log(std::move(logger)) {
    for (const char* reason : {"size", "magic", "version", "mac", "body", "nonce", "receiver"})  // founding::Drop
      dropped.emplace_back(options.metrics.with("reason", reason));
    assert(dropped.size() == founding::kDrops);
  }

  Result<void> start();
  void open();
  void listen();
  void look();
  void resolve();
  void advance();
  void pump();
  const Listener* listenerFor(const SocketAddress& to) const;
  void send(const Elector::Outgoing& message);
  void hasNoWay(const SocketAddress& to);
  void sendFrame(const Elector::Outgoing& message);
  void receive(const Listener& listener);
  void receive(Connection& connection, std::span<const uint8_t> bytes);
  void take(std::unique_ptr<net::TcpConnection> tcp);
  Connection& hold(std::unique_ptr<net::TcpConnection> tcp, bool incoming);
  void close(const Connection& connection);
  void write(founding::Founding::Unwritten record);
  void written(const founding::Founding::Unwritten& record, const Result<void>& result);
  void report();
  void leave();
  void say(bool even_if_unchanged);
  size_t count(bool incoming) const {
    return static_cast<size_t>(
        std::ranges::count(handles->connections, incoming, [](const auto& one) { return one.incoming; }));
  }

  const Options options;
  const Logger log;
  std::deque<Dropped> dropped;
  KernelRandom random;
  std::unique_ptr<net::EventLoop> loop;
  std::thread thread;

  // --- the loop's thread ---
  std::optional<Handles> handles;  // none: not yet, or not any more
  std::optional<Time> tick_due;    // since when the tick is due, or will be; none: it has just been
  std::optional<Elector> elector;
  Time started_at;
  std::string kept;  // where there is no disk
  bool writing = false;
  std::optional<founding::Founding::Unwritten> unwritten;  // the disk has refused it, for this reason
  std::string trouble;
  std::map<SocketAddress, std::string> not_listening;
  std::map<std::string, std::string> unresolved;  // name -> why
  bool resolving = false;
  Time resolve_at{};
  std::vector<founding::Voter> told;  // to on_member
  founding::Founding::State said = founding::Founding::State::kDecided;
  size_t said_seen = 0;
  Time said_at{};
  std::string said_other;
  bool leaves = false;  // has been said

  mutable std::mutex mutex;  // guards what follows
  Status status;
};

Result<void> Founder::Impl::start() {
  assert(options.record_file.empty() || options.disk);
  Elector::Options elector_options{.self = options.self, .port = options.port, .peers = options.meeting.addresses};
  elector_options.has_names = !options.meeting.names.empty();
  elector_options.silence = options.silence;
  if (const founding::Record& record = options.record; record.decided) {  // whom to ask, if it has to search
    const auto& voters = record.voters.empty() ? record.decided->voters : record.voters;
    for (const founding::Voter& voter : voters) elector_options.peers.push_back(voter.address);
  }
  auto made = net::EventLoop::make();
  if (!made) return tl::unexpected(made.error());
  loop = std::move(*made);
  started_at = BootClock::now();
  elector.emplace(std::move(elector_options), options.key, options.record, started_at, random);
  loop->post([this] { open(); });
  auto started = startThread([running = loop.get()] { running->run(); });
  if (!started) return tl::unexpected(started.error());
  thread = std::move(*started);
  return {};
}

void Founder::Impl::open() {
  handles.emplace(*loop, *this);
  handles->each_second.start(kSecond, kSecond);
  listen();
  resolve();
  advance();
}

void Founder::Impl::listen() {
  for (const SocketAddress& address : options.self.addresses) {
    if (std::ranges::find(handles->listeners, address, &Listener::address) != handles->listeners.end()) continue;
    auto udp = net::UdpSocket::bind(address, false);
    auto tcp =
        net::TcpListener::listen(*loop, address, false, [this](auto connection) { take(std::move(connection)); });
    if (!udp || !tcp) {
      const std::string& reason = udp ? tcp.error().message : udp.error().message;
      if (std::exchange(not_listening[address], reason) != reason)
        log.error("peers: cannot listen on {}, which is tried again: {}", address.toString(), reason);
      continue;
    }
    not_listening.erase(address);
    const int fd = udp->fd();
    handles->listeners.push_back({address, std::move(*udp), std::move(*tcp), nullptr});
    handles->listeners.back().watcher = std::make_unique<net::ReadWatcher>(
        *loop, fd, [this, address] { receive(*std::ranges::find(handles->listeners, address, &Listener::address)); });
  }
}

// Once a second.
void Founder::Impl::look() {
  listen();
  resolve();
  const Time now = BootClock::now();
  std::erase_if(handles->connections, [now](const Connection& one) { return now >= one.began + kConnectionPatience; });
  if (unwritten && !writing) {  // the newest record has all that those before have
    auto newest = elector->takeUnwritten();
    write(newest ? std::move(*newest) : founding::Founding::Unwritten(*unwritten));
  }
  pump();
  if (elector->decision()) return;
  say(now >= said_at + kSayInterval || elector->progress(now).seen != said_seen);
}

void Founder::Impl::resolve() {
  const Time now = BootClock::now();
  if (resolving || options.meeting.names.empty() || now < resolve_at) return;
  const auto work = [self = shared_from_this()] {
    std::vector<SocketAddress> addresses;
    std::map<std::string, std::string> failures;
    for (const std::string& name : self->options.meeting.names) {
      const auto found = lookUp(name, self->options.port);
      if (found) addresses.insert(addresses.end(), found->begin(), found->end());
      if (!found) failures[name] = found.error().message;
    }
    self->loop->post([self = self.get(), addresses = std::move(addresses), failures = std::move(failures)] {
      self->resolving = false;
      if (!self->handles) return;
      for (const auto& [name, reason] : failures) {
        const auto known = self->unresolved.find(name);
        if (known == self->unresolved.end() || known->second != reason)
          self->log.warning("peers: {} has no address: {}", name, reason);
      }
      self->unresolved = failures;
      const bool waits = self->elector->decision() && !self->elector->isSearching();
      self->resolve_at = BootClock::now() + (waits               ? kMembersResolveInterval
                                             : addresses.empty() || !failures.empty() ? kSecond
                                                                                      : kResolveInterval);
      self->elector->resolved(BootClock::now(), addresses, failures.empty());
      self->advance();
    });
  };
  resolving = options.executor->submit(work);
}

void Founder::Impl::advance() {
  tick_due.reset();
  // Without a listener nothing is sent: nobody would count as asked.
  if (!handles->listeners.empty()) elector->advance(BootClock::now());
  pump();
}

// Does what the elector wants done.
void Founder::Impl::pump() {
  const Time now = BootClock::now();
  while (true) {
    if (auto record = writing || unwritten ? std::nullopt : elector->takeUnwritten()) {
      if (!options.record_file.empty()) {
        write(std::move(*record));
      } else {
        kept = std::move(record->bytes);
        elector->written(now, record->version);
        continue;
      }
    }
    const std::vector<Elector::Outgoing> messages = elector->takeMessages();
    if (messages.empty()) break;
    for (const Elector::Outgoing& message : messages) send(message);
  }
  // Datagrams put the tick off, so that a busy processor reads answers before it asks more; but anybody can send them.
  const Time at = elector->wakeAt(now);
  if (!tick_due) tick_due = at;
  if (now < *tick_due + kMostPutOff)
    handles->tick.start(std::max(std::chrono::ceil<milliseconds>(at - now), milliseconds(1)));
  report();
}

void Founder::Impl::report() {
  for (size_t i = 0; i < founding::kDrops; ++i) {
    metrics::Counter& counter = dropped[i].counter;
    counter.add(elector->drops()[i] - counter.value());
  }
  const auto& decision = elector->decision();
  const founding::Progress progress = elector->progress(BootClock::now());
  {
    const std::lock_guard lock(mutex);
    status = {progress, elector->next() ? std::nullopt : decision,
              handles->listeners.size() == options.self.addresses.size(), elector->isSearching()};
  }
  if (!decision && progress.state != said) say(false);
  if (const auto& other = elector->other(); other && std::exchange(said_other, other->cluster) != other->cluster) {
    log.error("peers: another cluster of this secret was met: {}; that of this machine, {}, {}", other->cluster,
              decision->cluster, founding::yields(*decision, *other) ? "dissolves" : "stays");
  }
  if (elector->next()) return leave();
  leaves = false;
  if (!decision || elector->voters() == told) return;
  if (told.empty()) {
    const int64_t number = decision->numberOf(options.self.member.uuid);
    log.info("peers: a member of the cluster {}{}", decision->cluster,
             number > 0 ? fmt::format(", number {} of the {} that founded it", number, decision->members.size()) : "");
  }
  told = elector->voters();
  if (options.on_member) options.on_member(*decision, told, elector->hasPromised());
}

void Founder::Impl::leave() {
  if (std::exchange(leaves, true)) return;
  const founding::Value& own = *elector->decision();
  log.error("peers: the cluster {} dissolves: this machine gives up its names, and joins the other one, {}", own.cluster,
            elector->next()->cluster);
  told.clear();
  if (options.on_leave) options.on_leave(own);
}

void Founder::Impl::say(bool even_if_unchanged) {
  const founding::Progress progress = elector->progress(BootClock::now());
  if (progress.state == said && !even_if_unchanged) return;
  said = progress.state;
  said_seen = progress.seen;
  said_at = BootClock::now();
  log.info("peers: {}", progress.toString());
}

// --- the disk ---

void Founder::Impl::write(founding::Founding::Unwritten record) {
  writing = true;
  const auto work = [self = shared_from_this(), record = std::move(record)] {
    const auto result = replaceFile(self->options.record_file, record.bytes);
    self->loop->post([self = self.get(), record, result] {
      if (self->handles) self->written(record, result);
    });
  };
  if (!options.disk->submit(work)) writing = false;  // the process ends
}

void Founder::Impl::written(const founding::Founding::Unwritten& record, const Result<void>& result) {
  writing = false;
  const std::string before = std::exchange(trouble, result ? "" : result.error().message);
  if (result) {
    unwritten.reset();
    elector->written(BootClock::now(), record.version);
  } else {
    unwritten = record;
  }
  if (!result && trouble != before) {
    log.error("peers: what this machine promises cannot be kept, so it promises nothing: {}: {}", options.record_file,
              trouble);
  }
  pump();
}

// --- messages ---

void Founder::Impl::receive(const Listener& listener) {
  net::UdpBatch& batch = handles->batch;
  const size_t count = batch.receive(listener.udp);
  for (size_t i = 0; i < count; ++i) {
    const auto from = SocketAddress::fromSockaddr(batch.source(i));
    if (!from || batch.isTruncated(i)) continue;
    elector->receive(BootClock::now(), *from, {reinterpret_cast<const char*>(batch.buffer(i)), batch.size(i)});
  }
  pump();
}

void Founder::Impl::receive(Connection& connection, std::span<const uint8_t> bytes) {
  if (!connection.incoming) return;
  connection.received.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto frame = founding::firstFrame(connection.received);
  if (frame && !*frame) return;
  if (frame) elector->receive(BootClock::now(), connection.tcp->remote(), **frame);
  close(connection);
  pump();
}

void Founder::Impl::take(std::unique_ptr<net::TcpConnection> tcp) {
  Connection& connection = hold(std::move(tcp), true);
  connection.tcp->start(connection);
}

// If there are too many of that direction, the oldest makes room: strangers may have brought it about.
Founder::Impl::Connection& Founder::Impl::hold(std::unique_ptr<net::TcpConnection> tcp, bool incoming) {
  if (count(incoming) >= (incoming ? kMaxIncoming : kMaxOutgoing))
    handles->connections.erase(std::ranges::find(handles->connections, incoming, &Connection::incoming));
  return handles->connections.emplace_back(*this, std::move(tcp), incoming);
}

void Founder::Impl::close(const Connection& connection) {
  std::erase_if(handles->connections, [&connection](const Connection& one) { return &one == &connection; });
}

// By whose address the machine is known to that one. Null: there is none.
const Founder::Impl::Listener* Founder::Impl::listenerFor(const SocketAddress& to) const {
  const auto found =
      std::ranges::find_if(handles->listeners, [&to](const Listener& one) { return mayReach(one.address, to); });
  return found != handles->listeners.end() ? &*found : nullptr;
}

// A lost message is repeated by the elector.
void Founder::Impl::send(const Elector::Outgoing& message) {
  if (message.envelope.size() > founding::kMaxDatagram) return sendFrame(message);
  const Listener* from = listenerFor(message.to);
  if (from == nullptr) return hasNoWay(message.to);
  sockaddr_storage to;
  iovec bytes{const_cast<char*>(message.envelope.data()), message.envelope.size()};  // is only read
  msghdr datagram{};
  datagram.msg_name = &to;
  datagram.msg_namelen = message.to.toSockaddr(&to);
  datagram.msg_iov = &bytes;
  datagram.msg_iovlen = 1;
  if (sendmsg(from->udp.fd(), &datagram, 0) >= 0) return;
  if (errno == ENETUNREACH || errno == EHOSTUNREACH || errno == ENETDOWN) {
    hasNoWay(message.to);
  } else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {  // as when many addresses have no machine
    elector->unsent(BootClock::now(), message.to);
  }
}

void Founder::Impl::hasNoWay(const SocketAddress& to) {
  const bool may_come =
      std::ranges::any_of(options.self.addresses, [&to](const SocketAddress& own) { return mayReach(own, to); });
  const Time now = BootClock::now();
  if (may_come && now < started_at + kWayPatience) elector->unsent(now, to);
}

void Founder::Impl::sendFrame(const Elector::Outgoing& message) {
  const Listener* from = listenerFor(message.to);
  if (from == nullptr) return;
  auto tcp = handles->connector.connect(message.to, from->address.ip);
  if (!tcp) return;
  Connection& connection = hold(std::move(*tcp), false);
  connection.tcp->start(connection);
  const std::string frame = founding::frame(message.envelope);
  connection.tcp->write({frame.begin(), frame.end()});
}

// --- Founder ---

Founder::Founder(Options options, Logger log) : impl_(std::make_shared<Impl>(std::move(options), std::move(log))) {
  assert(!impl_->options.self.addresses.empty());
}

Founder::~Founder() { stop(); }

Result<void> Founder::start() { return impl_->start(); }

void Founder::stop() {
  if (!impl_->thread.joinable()) return;
  impl_->loop->post([impl = impl_.get()] { impl->handles.reset(); });
  impl_->loop->stop();
  impl_->thread.join();
}

void Founder::setVoters(std::vector<founding::Voter> voters) {
  if (!impl_->loop) return;
  impl_->loop->post([impl = impl_.get(), voters = std::move(voters)] {
    if (!impl->handles || impl->elector->next()) return;
    impl->elector->setVoters(voters);
    impl->told = impl->elector->voters();  // by who knows better than this thread
    impl->pump();
  });
}

void Founder::search(bool searching) {
  if (!impl_->loop) return;
  impl_->loop->post([impl = impl_.get(), searching] {
    if (!impl->handles) return;
    if (searching && !impl->elector->isSearching())
      impl->log.info("peers: no voter answers: other machines are asked for those of today");
    impl->elector->search(searching);
    if (searching) impl->resolve_at = {};
    impl->resolve();
    impl->advance();
  });
}

void Founder::left() {
  if (!impl_->loop) return;
  impl_->loop->post([impl = impl_.get()] {
    if (!impl->handles || !impl->elector->next()) return;
    impl->elector->left();
    impl->pump();
  });
}

Founder::Status Founder::status() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->status;
}

const std::string& Founder::keptRecord() const { return impl_->kept; }

}  // namespace idetcd::peers
