#include "net/tcp.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/event_loop_internal.h"

namespace idetcd::net {

namespace {

constexpr int kBacklog = 1024;
constexpr size_t kReadBuffer = size_t{64} << 10;
// The kernel would else hold unread answers of a client by the megabyte; and that it takes more in small steps
// distinguishes a slow reader from one that does not read.
constexpr int kMaxUnsent = 128 << 10;

SocketAddress nameOf(const uv_tcp_t& handle, decltype(&uv_tcp_getsockname) get) {
  sockaddr_storage storage;
  int length = sizeof(storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (get(&handle, address, &length) != 0) return {};
  return SocketAddress::fromSockaddr(address).value_or(SocketAddress{});
}

// A listening socket, or errno.
int openListener(const SocketAddress& address, bool reuse_port) {
  const int family = address.ip.isV4() ? AF_INET : AF_INET6;
  const int fd = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int one = 1;
  sockaddr_storage storage;
  const socklen_t length = address.toSockaddr(&storage);
  const bool ok = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&  // not to wait for TIME_WAIT
                  (!reuse_port || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) == 0) &&
                  setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsent, sizeof(kMaxUnsent)) == 0 &&
                  (family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) == 0) &&
                  ::bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0 && ::listen(fd, kBacklog) == 0;
  if (ok) return fd;
  const int error = errno;
  ::close(fd);
  return -error;
}

}  // namespace

struct TcpConnection::Impl {
  struct PendingWrite {
    uv_write_t request;
    std::vector<uint8_t> bytes;
    Impl* connection;
  };

  uv_tcp_t handle;
  StreamHandler* handler = nullptr;  // null once the TcpConnection is gone
  SocketAddress remote;
  SocketAddress local;
  std::shared_ptr<std::array<char, kReadBuffer>>
      read_buffer;        // shared by a listener's or connector's connections: used within one call
  bool had_turn = false;  // a whole buffer was read: there may be more, but others come first
  size_t writes_pending = 0;
  uint64_t written = 0;  // bytes, queued ones too
  uv_connect_t connect_request;
  bool connecting = false;
  int error = 0;  // of libuv

  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(&handle); }
  static Impl& of(const void* handle) { return *static_cast<Impl*>(static_cast<const uv_handle_t*>(handle)->data); }

  // libuv reads up to 32 buffers from one stream before it turns to the next, but none where it is given no room.
  static void onAllocate(uv_handle_t* handle, size_t, uv_buf_t* buffer) {
    Impl& self = of(handle);
    const size_t room = std::exchange(self.had_turn, false) ? 0 : self.read_buffer->size();
    *buffer = uv_buf_init(self.read_buffer->data(), static_cast<unsigned>(room));
  }

  static void onRead(uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
    Impl& self = of(stream);
    if (self.handler == nullptr || count == 0 || count == UV_ENOBUFS) return;
    if (count > 0) {
      self.had_turn = static_cast<size_t>(count) == self.read_buffer->size();
      self.handler->onData({reinterpret_cast<const uint8_t*>(buffer->base), static_cast<size_t>(count)});
    } else if (count == UV_EOF) {
      uv_read_stop(stream);
      self.handler->onEnd();
    } else {
      self.fail(static_cast<int>(count));
    }
  }

  static void onConnect(uv_connect_t* request, int status) {
    Impl& self = of(request->handle);
    self.connecting = false;
    if (self.handler == nullptr) return;
    if (status < 0) return self.fail(status);
    uv_read_start(request->handle, &onAllocate, &onRead);
    self.handler->onConnected();
  }

  void fail(int status) {
    error = status;
    handler->onError();
  }

  static void onWritten(uv_write_t* request, int status) {
    const std::unique_ptr<PendingWrite> write(static_cast<PendingWrite*>(request->data));
    Impl& self = *write->connection;
    --self.writes_pending;
    if (self.handler == nullptr) return;
    if (status < 0) {
      self.fail(status);
    } else if (self.writes_pending == 0) {
      self.handler->onDrained();
    }
  }

  void close() {
    handler = nullptr;
    uv_close(reinterpret_cast<uv_handle_t*>(&handle), [](uv_handle_t* closed) { delete &of(closed); });
  }
};

TcpConnection::~TcpConnection() { impl_->close(); }

void TcpConnection::start(StreamHandler& handler) {
  impl_->handler = &handler;
  if (!impl_->connecting) resumeReading();
}

void TcpConnection::pauseReading() { uv_read_stop(impl_->stream()); }

void TcpConnection::resumeReading() { uv_read_start(impl_->stream(), &Impl::onAllocate, &Impl::onRead); }

bool TcpConnection::write(std::vector<uint8_t>&& bytes) {
  impl_->written += bytes.size();
  size_t sent = 0;
  if (impl_->writes_pending == 0) {
    const uv_buf_t buffer = uv_buf_init(reinterpret_cast<char*>(bytes.data()), static_cast<unsigned>(bytes.size()));
    const int n = uv_try_write(impl_->stream(), &buffer, 1);
    if (n > 0) sent = static_cast<size_t>(n);
    if (sent == bytes.size()) return true;
  }
  auto* write = new Impl::PendingWrite{.request = {}, .bytes = std::move(bytes), .connection = impl_};
  write->request.data = write;
  const uv_buf_t rest = uv_buf_init(reinterpret_cast<char*>(write->bytes.data() + sent),
                                    static_cast<unsigned>(write->bytes.size() - sent));
  ++impl_->writes_pending;
  if (uv_write(&write->request, impl_->stream(), &rest, 1, &Impl::onWritten) != 0) {
    --impl_->writes_pending;  // the handle is broken: the read side reports it
    delete write;
  }
  return false;
}

bool TcpConnection::isDrained() const { return impl_->writes_pending == 0; }
size_t TcpConnection::queued() const { return uv_stream_get_write_queue_size(impl_->stream()); }
uint64_t TcpConnection::taken() const { return impl_->written - queued(); }
void TcpConnection::resetAtEnd() {
  constexpr linger kNothing{.l_onoff = 1, .l_linger = 0};
  uv_os_fd_t fd;
  if (uv_fileno(reinterpret_cast<const uv_handle_t*>(&impl_->handle), &fd) != 0) return;
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &kNothing, sizeof(kNothing));
}
std::string TcpConnection::failure() const { return impl_->error != 0 ? uv_strerror(impl_->error) : "closed"; }
const SocketAddress& TcpConnection::remote() const { return impl_->remote; }
const SocketAddress& TcpConnection::local() const { return impl_->local; }

// accept(2) is called here and not by libuv, which calls it again and again for as long as there is no descriptor (it
// keeps one in reserve, and loses it to other threads).
struct TcpListener::Impl {
  static constexpr int kMaxAccepts = 16;  // a wake-up
  static constexpr std::chrono::milliseconds kPause{100};

  Impl(EventLoop& event_loop, int socket, Accept callback)
      : loop(event_loop), fd(socket), accept(std::move(callback)), pause(event_loop, [this] { listen(); }) {
    listen();
  }
  ~Impl() {
    watcher.reset();
    ::close(fd);
  }

  void listen() {
    watcher.emplace(loop, fd, [this] { onReadable(); });
  }

  void onReadable() {
    const std::weak_ptr<bool> guard = alive;  // the callback may destroy this
    for (int i = 0; i < kMaxAccepts && !guard.expired() && watcher; ++i) {
      sockaddr_storage storage;
      socklen_t length = sizeof(storage);
      const int client = ::accept4(fd, reinterpret_cast<sockaddr*>(&storage), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (client >= 0) {
        take(client, storage);
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (!isWantOfResources(errno)) continue;  // of this one connection: ECONNABORTED, or an error of its network
      watcher.reset();
      return pause.start(kPause);
    }
  }

  void take(int client, const sockaddr_storage& remote) {
    auto* connection = new TcpConnection::Impl;
    connection->handle.data = connection;
    connection->read_buffer = read_buffer;
    uv_tcp_init(&loop.impl().loop, &connection->handle);
    std::unique_ptr<TcpConnection> owner(new TcpConnection(connection));
    if (uv_tcp_open(&connection->handle, client) != 0) {
      ::close(client);
      return;
    }
    uv_tcp_nodelay(&connection->handle, 1);
    connection->remote =
        SocketAddress::fromSockaddr(reinterpret_cast<const sockaddr*>(&remote)).value_or(SocketAddress{});
    connection->local = nameOf(connection->handle, &uv_tcp_getsockname);
    accept(std::move(owner));
  }

  EventLoop& loop;
  const int fd;
  Accept accept;
  std::optional<ReadWatcher> watcher;  // none during a pause
  Timer pause;
  std::shared_ptr<std::array<char, kReadBuffer>> read_buffer = std::make_shared<std::array<char, kReadBuffer>>();
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

TcpListener::TcpListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TcpListener::~TcpListener() = default;

Result<std::unique_ptr<TcpListener>> TcpListener::listen(EventLoop& loop, const SocketAddress& address, bool reuse_port,
                                                         Accept accept) {
  const int fd = openListener(address, reuse_port);
  if (fd < 0) return failWith(-fd);
  return std::unique_ptr<TcpListener>(new TcpListener(std::make_unique<Impl>(loop, fd, std::move(accept))));
}

std::unique_ptr<TcpListener> TcpListener::adopt(EventLoop& loop, FileDescriptor listening, Accept accept) {
  const int fd = listening.release();
  setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsent, sizeof(kMaxUnsent));
  ::listen(fd, kBacklog);  // whatever it was
  return std::unique_ptr<TcpListener>(new TcpListener(std::make_unique<Impl>(loop, fd, std::move(accept))));
}

void TcpListener::pause() {
  impl_->watcher.reset();
  impl_->pause.stop();
}

void TcpListener::resume() {
  if (!impl_->watcher) impl_->listen();
}

int TcpListener::fd() const { return impl_->fd; }

SocketAddress TcpListener::localAddress() const {
  sockaddr_storage storage;
  socklen_t length = sizeof(storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (::getsockname(impl_->fd, address, &length) != 0) return {};
  return SocketAddress::fromSockaddr(address).value_or(SocketAddress{});
}

void TcpListener::allowSharing() {
  const int one = 1;
  setsockopt(impl_->fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
}

struct TcpConnector::Impl {
  EventLoop& loop;
  std::shared_ptr<std::array<char, kReadBuffer>> read_buffer = std::make_shared<std::array<char, kReadBuffer>>();
};

TcpConnector::TcpConnector(EventLoop& loop) : impl_(new Impl{.loop = loop}) {}

Result<std::unique_ptr<TcpConnection>> TcpConnector::connect(const SocketAddress& address,
                                                             const std::optional<IpAddress>& source) {
  auto* impl = new TcpConnection::Impl;
  impl->handle.data = impl;
  impl->read_buffer = impl_->read_buffer;
  impl->remote = address;
  uv_tcp_init(&impl_->loop.impl().loop, &impl->handle);
  std::unique_ptr<TcpConnection> connection(new TcpConnection(impl));
  sockaddr_storage storage;
  if (source) {
    SocketAddress{.ip = *source}.toSockaddr(&storage);
    if (const int status = uv_tcp_bind(&impl->handle, reinterpret_cast<sockaddr*>(&storage), 0); status != 0)
      return failWith(-status);
  }
  address.toSockaddr(&storage);
  const int status = uv_tcp_connect(&impl->connect_request, &impl->handle, reinterpret_cast<sockaddr*>(&storage),
                                    &TcpConnection::Impl::onConnect);
  if (status != 0) return failWith(-status);
  impl->connecting = true;
  uv_tcp_nodelay(&impl->handle, 1);
  return connection;
}

}  // namespace idetcd::net
