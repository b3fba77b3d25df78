#include "net/tls_stream.h"

#include <climits>
#include <filesystem>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/file.h"

namespace idetcd::net {

namespace {

struct OpenSslDeleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpenSslDeleter>;

std::string lastError() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  return reason != nullptr ? reason : "TLS failed";
}

}  // namespace

struct TlsContext::Impl {
  Owned<SSL_CTX> context;
};

struct TlsPeer::Impl {
  std::shared_ptr<TlsContext> context;
  std::string name;
  IpAddress address;
  Owned<SSL_SESSION> session;  // the newest; null: none yet
};

namespace {

// Keeps a session that the server offers with the peer, which is the SSL object's application data.
int onNewSession(SSL* ssl, SSL_SESSION* session) {
  auto* peer = static_cast<TlsPeer::Impl*>(SSL_get_app_data(ssl));
  if (peer == nullptr) return 0;
  peer->session.reset(session);
  return 1;  // the reference is ours now
}

Result<void> loadFiles(SSL_CTX* context, const TlsContext::Options& options) {
  ERR_clear_error();
  for (const std::string* path : {&options.ca_file, &options.certificate_file, &options.key_file}) {
    std::error_code error;  // what is not there is reported below; a FIFO would be waited for
    const auto status = std::filesystem::status(*path, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
      return fail(fmt::format("{} is not a regular file", *path));
  }
  if (options.ca_file.empty()) SSL_CTX_load_verify_file(context, systemCaFile().c_str());  // missing: trusts no one
  const bool trusted = options.ca_file.empty()
                           ? SSL_CTX_set_default_verify_paths(context) == 1
                           : SSL_CTX_load_verify_locations(context, options.ca_file.c_str(), nullptr) == 1;
  if (!trusted) return fail(fmt::format("cannot read the CA certificates of {}: {}", options.ca_file, lastError()));
  if (options.certificate_file.empty()) return {};
  if (SSL_CTX_use_certificate_chain_file(context, options.certificate_file.c_str()) != 1) {
    return fail(fmt::format("cannot read the certificate {}: {}", options.certificate_file, lastError()));
  }
  if (SSL_CTX_use_PrivateKey_file(context, options.key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return fail(fmt::format("cannot use the key {}: {}", options.key_file, lastError()));
  }
  return {};
}

}  // namespace

TlsContext::TlsContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<TlsContext>> TlsContext::make(const Options& options) {
  auto impl = std::make_unique<Impl>();
  impl->context.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* context = impl->context.get();
  if (context == nullptr) return fail(lastError());
  if (auto loaded = loadFiles(context, options); !loaded) return tl::unexpected(loaded.error());
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);  // RFC 8996, RFC 9325
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context, &onNewSession);
  if (const std::string& protocol = options.application_protocol; !protocol.empty()) {
    const std::string list = static_cast<char>(protocol.size()) + protocol;
    SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(list.data()),
                            static_cast<unsigned>(list.size()));
  }
  return std::shared_ptr<TlsContext>(new TlsContext(std::move(impl)));
}

TlsPeer::TlsPeer(std::shared_ptr<TlsContext> context, std::string name, const IpAddress& address)
    : impl_(new Impl{.context = std::move(context), .name = std::move(name), .address = address, .session = nullptr}) {}
TlsPeer::~TlsPeer() = default;

struct TlsStream::Impl : StreamHandler, std::enable_shared_from_this<TlsStream::Impl> {
  std::shared_ptr<TlsPeer::Impl> peer;
  std::unique_ptr<TcpConnection> connection;
  StreamHandler* handler = nullptr;
  Owned<SSL> ssl;
  BIO* from_peer = nullptr;  // memory, owned by `ssl`
  BIO* to_peer = nullptr;
  std::vector<uint8_t> queued;  // written before the handshake was over
  std::string failure;
  bool connected = false;

  ~Impl() override {
    if (!ssl) return;
    // A connection that is simply given up must not make its session unusable.
    if (connected) SSL_set_shutdown(ssl.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_set_app_data(ssl.get(), nullptr);
  }

  // The stream is gone; one of our functions may still be running, which then holds `this`.
  void close() {
    handler = nullptr;
    connection.reset();
  }

  bool setUp() {
    ERR_clear_error();
    ssl.reset(SSL_new(peer->context->impl().context.get()));
    if (!ssl) return false;
    from_peer = BIO_new(BIO_s_mem());
    to_peer = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), from_peer, to_peer);
    SSL_set_app_data(ssl.get(), peer.get());
    SSL_set_connect_state(ssl.get());
    if (peer->session) SSL_set_session(ssl.get(), peer->session.get());
    return setExpectedPeer();
  }

  bool setExpectedPeer() {
    X509_VERIFY_PARAM* expected = SSL_get0_param(ssl.get());
    if (peer->name.empty()) return X509_VERIFY_PARAM_set1_ip(expected, peer->address.data(), peer->address.size()) == 1;
    if (const auto ip = IpAddress::parse(peer->name)) {
      return X509_VERIFY_PARAM_set1_ip(expected, ip->data(), ip->size()) == 1;
    }
    X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(expected, peer->name.c_str(), peer->name.size()) == 1 &&
           SSL_ctrl(ssl.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                    const_cast<char*>(peer->name.c_str())) == 1;  // the macro for it is an old-style cast
  }

  void onConnected() override {
    if (!setUp()) return fail(lastError());
    shakeHands();
  }

  void onData(std::span<const uint8_t> bytes) override {
    BIO_write(from_peer, bytes.data(), static_cast<int>(bytes.size()));
    if (!connected) return shakeHands();
    read();
  }
  void onEnd() override {
    failure = connected ? "closed" : "closed during the TLS handshake";
    connected ? handler->onEnd() : handler->onError();
  }
  void onDrained() override {
    if (connected) handler->onDrained();
  }
  void onError() override { handler->onError(); }

  void shakeHands() {
    ERR_clear_error();
    const int status = SSL_do_handshake(ssl.get());
    flush();
    if (status != 1) {
      if (const int error = SSL_get_error(ssl.get(), status);
          error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        return;
      }
      const long verdict = SSL_get_verify_result(ssl.get());
      return fail(verdict != X509_V_OK ? X509_verify_cert_error_string(verdict) : lastError());
    }
    connected = true;
    const auto self = shared_from_this();
    if (!queued.empty()) encrypt(std::exchange(queued, {}));
    handler->onConnected();
    if (handler != nullptr) read();  // what came with the last flight
  }

  void read() {
    std::array<uint8_t, 16384> buffer;
    const auto self = shared_from_this();
    while (handler != nullptr) {
      ERR_clear_error();
      const int size = SSL_read(ssl.get(), buffer.data(), static_cast<int>(buffer.size()));
      if (size <= 0) return afterRead(size);
      handler->onData({buffer.data(), static_cast<size_t>(size)});
    }
  }

  void afterRead(int status) {
    const int error = SSL_get_error(ssl.get(), status);
    flush();  // what the protocol wants to say by itself
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return;
    if (error != SSL_ERROR_ZERO_RETURN) return fail(lastError());
    failure = "closed";
    handler->onEnd();
  }

  // False if the connection has failed: the read side reports it.
  bool encrypt(const std::vector<uint8_t>& bytes) {
    ERR_clear_error();
    // A memory BIO takes everything.
    if (SSL_write(ssl.get(), bytes.data(), static_cast<int>(bytes.size())) <= 0) return false;
    flush();
    return true;
  }

  void flush() {
    char* data = nullptr;
    const long size = BIO_ctrl(to_peer, BIO_CTRL_INFO, 0, &data);  // the macros for this are old-style casts
    if (size <= 0) return;
    connection->write({reinterpret_cast<uint8_t*>(data), reinterpret_cast<uint8_t*>(data) + size});
    BIO_ctrl(to_peer, BIO_CTRL_RESET, 0, nullptr);
  }

  void fail(std::string reason) {
    failure = "TLS: " + std::move(reason);
    peer->session.reset();  // whatever is wrong, it is not resumed
    handler->onError();
  }
};

TlsStream::TlsStream(TlsPeer& peer, std::unique_ptr<TcpConnection> connection) : impl_(std::make_shared<Impl>()) {
  impl_->peer = peer.impl();
  impl_->connection = std::move(connection);
}

TlsStream::~TlsStream() { impl_->close(); }

void TlsStream::start(StreamHandler& handler) {
  impl_->handler = &handler;
  impl_->connection->start(*impl_);
}

bool TlsStream::write(std::vector<uint8_t>&& bytes) {
  if (bytes.empty()) return true;
  if (!impl_->connected) {
    impl_->queued.insert(impl_->queued.end(), bytes.begin(), bytes.end());
    return false;
  }
  return impl_->encrypt(bytes) && impl_->connection->isDrained();
}

std::string TlsStream::failure() const {
  return impl_->failure.empty() ? impl_->connection->failure() : impl_->failure;
}

}  // namespace idetcd::net
