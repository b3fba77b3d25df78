#include "http/server.h"

#include <ctime>
#include <future>
#include <iterator>
#include <list>
#include <sys/resource.h>
#include <thread>

#include "base/executor.h"
#include "net/event_loop.h"
#include "net/local_addresses.h"
#include "net/tcp.h"

namespace idetcd::http {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{250};
// A connection that is closed while bytes of its client are unread is reset, and the response may be lost with it.
constexpr std::chrono::seconds kLinger{1};

std::string_view reasonOf(int status) {
  static constexpr std::array<std::pair<int, std::string_view>, 14> kReasons{{{200, "OK"},
                                                                              {202, "Accepted"},
                                                                              {400, "Bad Request"},
                                                                              {404, "Not Found"},
                                                                              {405, "Method Not Allowed"},
                                                                              {409, "Conflict"},
                                                                              {413, "Content Too Large"},
                                                                              {421, "Misdirected Request"},
                                                                              {431, "Request Header Fields Too Large"},
                                                                              {500, "Internal Server Error"},
                                                                              {501, "Not Implemented"},
                                                                              {503, "Service Unavailable"},
                                                                              {504, "Gateway Timeout"},
                                                                              {505, "HTTP Version Not Supported"}}};
  for (const auto& [known, reason] : kReasons) {
    if (known == status) return reason;
  }
  return "";
}

// As RFC 9110, section 5.6.7 has it.
std::string httpDate() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return {text.data(), size};
}

std::vector<uint8_t> encode(const Response& response, bool allows_post, bool with_body, bool keeps_alive) {
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n", response.status,
                  reasonOf(response.status), httpDate(), response.content_type, response.body.size());
  if (response.status == 405) text += allows_post ? "Allow: GET, HEAD, POST\r\n" : "Allow: GET, HEAD\r\n";
  for (const auto& [name, value] : response.fields) fmt::format_to(std::back_inserter(text), "{}: {}\r\n", name, value);
  text += keeps_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  if (with_body) text += response.body;
  return {text.begin(), text.end()};
}

// At most two thirds of the margin that net::DescriptorBudget leaves for what it does not count.
size_t maxLocal() {
  constexpr rlim_t kPart = 16;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return Server::kMaxLocal;
  return std::clamp<rlim_t>(limit.rlim_cur / kPart, Server::kMaxConnections, Server::kMaxLocal);
}

Response refusal(int status) { return {.status = status, .body = fmt::format("{}\n", reasonOf(status))}; }

// The way of late replies to the server's loop, for as long as that runs.
class Mailbox {
 public:
  explicit Mailbox(net::EventLoop& loop) : loop_(&loop) {}

  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (loop_ != nullptr) loop_->post(std::move(task));
  }
  void close() {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
  }

 private:
  std::mutex mutex_;
  net::EventLoop* loop_;  // null: it is gone
};

// Shared by the copies of one Reply.
class PendingReply {
 public:
  // `deliver` is called on the loop's thread, once.
  PendingReply(std::shared_ptr<Mailbox> mailbox, Reply deliver)
      : mailbox_(std::move(mailbox)), deliver_(std::move(deliver)) {}
  PendingReply(const PendingReply&) = delete;
  PendingReply& operator=(const PendingReply&) = delete;
  ~PendingReply() { answer(refusal(500)); }

  void answer(Response response) {
    if (answered_.exchange(true)) return;
    mailbox_->post([deliver = deliver_, shared = std::make_shared<Response>(std::move(response))] {
      deliver(std::move(*shared));
    });
  }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
  const Reply deliver_;
  std::atomic<bool> answered_{false};
};

}  // namespace

// All but `loop` and `thread` belongs to the loop's thread once that runs.
struct Server::Impl {
  class Session;
  // The listener of a connection: an address, or the Unix socket.
  using Origin = std::optional<SocketAddress>;

  explicit Impl(std::unique_ptr<net::EventLoop> own_loop)
      : loop(std::move(own_loop)), mailbox(std::make_shared<Mailbox>(*loop)), tick(*loop, [this] { closeLate(); }) {}

  Result<SocketAddress> listen(const SocketAddress& address);
  void use(std::shared_ptr<const Routes> next);
  void listenLocally(FileDescriptor bound);
  void accept(const Origin& origin, std::unique_ptr<net::TcpConnection> connection);
  std::optional<Response> respond(const Session& session, const Request& request);
  void answerLate(uint64_t session, const Response& response);
  void touch(Session& session);
  void close(Session& session);
  size_t localSessions() const;
  void closeLate();
  void onClosed();
  void clear();

  std::unique_ptr<net::EventLoop> loop;
  const std::shared_ptr<Mailbox> mailbox;
  std::thread thread;
  std::map<SocketAddress, std::unique_ptr<net::TcpListener>> listeners;  // by what listen() was given
  std::shared_ptr<const Routes> routes = std::make_shared<const Routes>();
  std::unique_ptr<net::TcpListener> local_listener;
  const size_t max_local = maxLocal();
  std::shared_ptr<const Paths> local_paths;  // null until useLocal()
  std::list<Session> sessions;               // longest idle first
  uint64_t last_session = 0;
  net::Timer tick;  // runs while there are sessions
};

// One connection.
class Server::Impl::Session final : public net::StreamHandler {
 public:
  Session(Impl& server, uint64_t number, const Origin& origin, std::unique_ptr<net::TcpConnection> connection)
      : server_(server), number_(number), origin_(origin), connection_(std::move(connection)) {}

  void start() { connection_->start(*this); }
  uint64_t number() const { return number_; }
  const Origin& origin() const { return origin_; }
  bool isWaiting() const { return state_ == State::kWaiting; }
  void answerLate(const Response& response);
  bool isLate(Clock::time_point now);
  // Whether its client has had `time` for a request, and has not sent it.
  bool isSlow(Clock::time_point now, std::chrono::nanoseconds time) const {
    return state_ == State::kReading && now >= deadline_ - kPatience + time;
  }

  void onData(std::span<const uint8_t> bytes) override;
  void onEnd() override;
  void onDrained() override;
  void onError() override { server_.close(*this); }

 private:
  enum class State : uint8_t {
    kReading,
    kWaiting,    // for a LateHandler; what the client sends meanwhile waits
    kAnswering,  // a response is on its way; what the client sends meanwhile waits
    kLast,       // as before; then the connection is closed
    kLingering,  // all is said; what the client still sends is thrown away
  };

  // These return whether the next request may be looked at: not for now, or never, as this object may be gone.
  bool answerNext();
  bool answer(const Response& response);
  bool send(const Response& response, bool with_body, State meanwhile);
  bool onSent();

  Impl& server_;
  const uint64_t number_;
  const Origin origin_;
  const std::unique_ptr<net::TcpConnection> connection_;
  State state_ = State::kReading;
  bool refused_ = false;  // what the client sends after this has no meaning
  bool ended_ = false;    // the client sends no more
  RequestReader reader_{origin_ ? RequestReader::Post::kRefused : RequestReader::Post::kAllowed};
  std::string input_;  // that the reader has not taken
  Clock::time_point deadline_ = Clock::now() + kPatience;
  uint64_t taken_ = 0;  // by the client, when the deadline was set
};

void Server::Impl::Session::onData(std::span<const uint8_t> bytes) {
  if (state_ == State::kLingering) return;
  input_.append(bytes.begin(), bytes.end());
  while (answerNext()) continue;
}

void Server::Impl::Session::onEnd() {
  ended_ = true;
  if (state_ == State::kReading || state_ == State::kLingering) server_.close(*this);
}

void Server::Impl::Session::onDrained() {
  connection_->resumeReading();
  if (!onSent()) return;
  while (answerNext()) continue;
}

bool Server::Impl::Session::answerNext() {
  if (state_ != State::kReading) return false;
  const auto progress = reader_.read(input_);
  input_.erase(0, reader_.taken());
  if (progress == RequestReader::Progress::kIncomplete) return false;
  if (progress == RequestReader::Progress::kRefused) {
    refused_ = true;
    return send(refusal(reader_.status()), true, State::kLast);
  }
  if (const auto response = server_.respond(*this, reader_.request())) return answer(*response);
  state_ = State::kWaiting;
  deadline_ = Clock::now() + kLatePatience;
  server_.touch(*this);
  connection_->pauseReading();
  return false;
}

// To the request that the reader has.
bool Server::Impl::Session::answer(const Response& response) {
  const Request& request = reader_.request();
  return send(response, !request.is_head, request.keeps_alive ? State::kAnswering : State::kLast);
}

void Server::Impl::Session::answerLate(const Response& response) {
  connection_->resumeReading();
  if (!answer(response)) return;
  while (answerNext()) continue;
}

bool Server::Impl::Session::send(const Response& response, bool with_body, State meanwhile) {
  state_ = meanwhile;
  deadline_ = Clock::now() + kPatience;
  server_.touch(*this);
  if (connection_->write(encode(response, !origin_, with_body, meanwhile == State::kAnswering))) return onSent();
  taken_ = connection_->taken();
  connection_->pauseReading();
  return false;
}

bool Server::Impl::Session::onSent() {
  const bool is_last = state_ == State::kLast;
  if ((is_last && !refused_) || ended_) {
    server_.close(*this);
    return false;
  }
  state_ = is_last ? State::kLingering : State::kReading;
  deadline_ = Clock::now() + (is_last ? kLinger : kPatience);
  return !is_last;
}

bool Server::Impl::Session::isLate(Clock::time_point now) {
  const bool is_sending = state_ == State::kAnswering || state_ == State::kLast || state_ == State::kLingering;
  if (const uint64_t taken = connection_->taken(); is_sending && taken != taken_) {
    taken_ = taken;
    if (state_ != State::kLingering) deadline_ = now + kPatience;
  }
  return now >= deadline_;
}

Result<SocketAddress> Server::Impl::listen(const SocketAddress& address) {
  if (const auto known = listeners.find(address); known != listeners.end()) return known->second->localAddress();
  bool shared = false;
  for (const auto& [other, listener] : listeners) {
    if (!net::overlap(other, address)) continue;
    listener->allowSharing();
    shared = true;
  }
  auto listener = net::TcpListener::listen(
      *loop, address, shared, [this, address](auto connection) { accept(address, std::move(connection)); });
  if (!listener) return tl::unexpected(listener.error());
  return listeners.emplace(address, std::move(*listener)).first->second->localAddress();
}

void Server::Impl::use(std::shared_ptr<const Routes> next) {
  routes = std::move(next);
  std::erase_if(listeners, [this](const auto& entry) { return !routes->contains(entry.first); });
  std::erase_if(sessions,
                [this](const Session& session) { return session.origin() && !routes->contains(*session.origin()); });
}

void Server::Impl::listenLocally(FileDescriptor bound) {
  local_listener = net::TcpListener::adopt(*loop, std::move(bound),
                                           [this](auto connection) { accept(std::nullopt, std::move(connection)); });
}

void Server::Impl::accept(const Origin& origin, std::unique_ptr<net::TcpConnection> connection) {
  const auto is_rival = [&origin](const Session& session) { return session.origin() == origin; };
  if (!origin && localSessions() + 1 >= max_local) local_listener->pause();
  if (origin && static_cast<size_t>(std::ranges::count_if(sessions, is_rival)) == kMaxConnections) {
    const auto idle = [&](const Session& session) { return is_rival(session) && !session.isWaiting(); };
    const auto longest_idle = std::ranges::find_if(sessions, idle);
    sessions.erase(longest_idle != sessions.end() ? longest_idle : std::ranges::find_if(sessions, is_rival));
  }
  if (sessions.empty()) tick.start(kTick, kTick);
  sessions.emplace_back(*this, ++last_session, origin, std::move(connection)).start();
}

// None: the answer comes late.
std::optional<Response> Server::Impl::respond(const Session& session, const Request& request) {
  const auto here = routes;  // a handler may be replaced while it answers
  const auto local = local_paths;
  const Paths* paths = local.get();
  if (session.origin()) {
    const auto found = here->find(*session.origin());
    paths = found != here->end() ? &found->second : nullptr;
  }
  if (paths == nullptr) return refusal(503);
  const auto route = paths->find(request.path);
  if (route == paths->end()) return refusal(404);
  if (const auto* handler = std::get_if<Handler>(&route->second)) return (*handler)(request);
  const auto pending = std::make_shared<PendingReply>(
      mailbox, [this, number = session.number()](const Response& response) { answerLate(number, response); });
  std::get<LateHandler>(route->second)(request, [pending](Response response) { pending->answer(std::move(response)); });
  return std::nullopt;
}

void Server::Impl::answerLate(uint64_t session, const Response& response) {
  const auto it =
      std::find_if(sessions.begin(), sessions.end(), [session](const Session& one) { return one.number() == session; });
  if (it != sessions.end()) it->answerLate(response);
}

void Server::Impl::touch(Session& session) {
  const auto it =
      std::find_if(sessions.begin(), sessions.end(), [&session](const Session& one) { return &one == &session; });
  sessions.splice(sessions.end(), sessions, it);
}

void Server::Impl::close(Session& session) {
  sessions.remove_if([&session](const Session& one) { return &one == &session; });
  onClosed();
}

void Server::Impl::onClosed() {
  if (sessions.empty()) tick.stop();
  if (local_listener && localSessions() < max_local) local_listener->resume();
}

size_t Server::Impl::localSessions() const {
  return static_cast<size_t>(std::ranges::count_if(sessions, [](const Session& one) { return !one.origin(); }));
}

void Server::Impl::closeLate() {
  const auto now = Clock::now();
  sessions.remove_if([now](Session& session) { return session.isLate(now); });
  if (localSessions() >= max_local)
    sessions.remove_if([now](Session& one) { return !one.origin() && one.isSlow(now, kLocalPatience); });
  onClosed();
}

void Server::Impl::clear() {
  mailbox->close();
  tick.stop();
  listeners.clear();
  local_listener.reset();
  sessions.clear();
  routes.reset();
  local_paths.reset();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Server>> Server::start() {
  auto loop = net::EventLoop::make();
  if (!loop) return tl::unexpected(loop.error());
  auto impl = std::make_unique<Impl>(std::move(*loop));
  auto thread = startThread([loop = impl->loop.get()] { loop->run(); });
  if (!thread) return tl::unexpected(thread.error());
  impl->thread = std::move(*thread);
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::~Server() {
  impl_->loop->post([this] { impl_->clear(); });
  impl_->loop->stop();
  impl_->thread.join();
}

Result<SocketAddress> Server::listen(const SocketAddress& address) {
  std::promise<Result<SocketAddress>> listening;
  impl_->loop->post([this, &address, &listening] { listening.set_value(impl_->listen(address)); });
  return listening.get_future().get();
}

void Server::use(Routes routes) {
  impl_->loop->post(
      [this, next = std::make_shared<const Routes>(std::move(routes))]() mutable { impl_->use(std::move(next)); });
}

// A closure of std::function is copyable, a descriptor is not.
void Server::listenLocally(FileDescriptor bound) {
  impl_->loop->post([this, shared = std::make_shared<FileDescriptor>(std::move(bound))] {
    impl_->listenLocally(std::move(*shared));
  });
}

void Server::useLocal(Paths paths) {
  impl_->loop->post([this, next = std::make_shared<const Paths>(std::move(paths))]() mutable {
    impl_->local_paths = std::move(next);
  });
}

}  // namespace idetcd::http
