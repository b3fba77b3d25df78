#include "net/tls_stream.h"

#include <climits>
#include <filesystem>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/openssl.h"

namespace idetcd::net {

namespace {

using openssl::Owned;

std::string lastError() {
  const unsigned long first = ERR_peek_error();
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  if (ERR_SYSTEM_ERROR(first)) return std::strerror(ERR_GET_REASON(first));
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

// Who is trusted where no CA is configured.
enum class SystemStore : uint8_t {
  kNone,
  kFile,  // that of the system, read once
  kAll,   // and those in its directory, which each certificate of somebody unknown is looked for in
};

Result<void> loadFiles(SSL_CTX* context, const TlsContext::Options& options, SystemStore system) {
  ERR_clear_error();
  // Nobody is there to be asked for one.
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });
  for (const std::string* path : {&options.ca_file, &options.certificate_file, &options.key_file}) {
    std::error_code error;  // what is not there is reported below; a FIFO would be waited for
    const auto status = std::filesystem::status(*path, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
      return fail(fmt::format("{} is not a regular file", *path));
  }
  if (options.ca_file.empty() && system != SystemStore::kNone)
    SSL_CTX_load_verify_file(context, systemCaFile().c_str());  // missing: trusts no one
  const bool trusted = options.ca_file.empty()
                           ? system != SystemStore::kAll || SSL_CTX_set_default_verify_paths(context) == 1
                           : SSL_CTX_load_verify_file(context, options.ca_file.c_str()) == 1;
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
  if (auto loaded = loadFiles(context, options, SystemStore::kAll); !loaded) return tl::unexpected(loaded.error());
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

namespace {

// The keys that seal the tickets by which clients resume their sessions (RFC 5077 §4). Any thread.
class TicketKeys {
 public:
  struct Key {
    std::array<uint8_t, 16> name;  // the size is OpenSSL's
    std::array<uint8_t, 32> cipher;
    std::array<uint8_t, 32> mac;
    BootClock::time_point made;
  };

  explicit TicketKeys(std::chrono::milliseconds life) : life_(life) {}

  // Nothing: there are no random numbers.
  std::optional<Key> newest() {
    const std::lock_guard lock(mutex_);
    const auto now = BootClock::now();
    std::erase_if(keys_, [&](const Key& key) { return now - key.made >= 2 * life_; });
    if (keys_.empty() || now - keys_.back().made >= life_) {
      Key key{.name = {}, .cipher = {}, .mac = {}, .made = now};
      for (std::span<uint8_t> part :
           {std::span<uint8_t>(key.name), std::span<uint8_t>(key.cipher), std::span<uint8_t>(key.mac)})
        if (RAND_bytes(part.data(), static_cast<int>(part.size())) != 1) return std::nullopt;
      keys_.push_back(key);
    }
    return keys_.back();
  }
  // Nothing: it is unknown, or too old.
  std::optional<Key> find(std::span<const uint8_t> name) {
    const std::lock_guard lock(mutex_);
    const auto now = BootClock::now();
    const auto key = std::ranges::find_if(keys_, [&](const Key& one) { return std::ranges::equal(one.name, name); });
    if (key == keys_.end() || now - key->made >= 2 * life_) return std::nullopt;
    return *key;
  }
  bool isNewest(const Key& key) const { return BootClock::now() - key.made < life_; }

 private:
  const std::chrono::milliseconds life_;
  std::mutex mutex_;
  std::vector<Key> keys_;  // the newest last; guarded by mutex_
};

bool setMacKey(EVP_MAC_CTX* mac, TicketKeys::Key& key) {
  char digest[] = "SHA256";
  const std::array<OSSL_PARAM, 3> parameters{
      OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key.mac.data(), key.mac.size()),
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0), OSSL_PARAM_construct_end()};
  return EVP_MAC_CTX_set_params(mac, parameters.data()) == 1;
}

// Of OpenSSL, to seal a ticket or to open one. Returns 1: done; 2: done, and the client is to get a new ticket; 0: a full
// handshake; -1: an error.
int onTicket(SSL* ssl, unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher, EVP_MAC_CTX* mac, int seals) {
  auto* keys = static_cast<TicketKeys*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  constexpr int kError = -1;
  constexpr int kFullHandshake = 0;
  constexpr int kDone = 1;
  constexpr int kDoneAndRenew = 2;
  if (seals != 0) {
    auto key = keys->newest();
    if (!key || RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) != 1) return kError;
    std::ranges::copy(key->name, name);
    const bool sealed = EVP_EncryptInit_ex(cipher, EVP_aes_256_cbc(), nullptr, key->cipher.data(), iv) == 1;
    return sealed && setMacKey(mac, *key) ? kDone : kError;
  }
  auto key = keys->find({name, std::tuple_size_v<decltype(TicketKeys::Key::name)>});
  if (!key) return kFullHandshake;
  const bool opened = EVP_DecryptInit_ex(cipher, EVP_aes_256_cbc(), nullptr, key->cipher.data(), iv) == 1;
  if (!opened || !setMacKey(mac, *key)) return kError;
  return keys->isNewest(*key) ? kDone : kDoneAndRenew;
}

// Of what the client offers by ALPN, the protocol that is the SSL object's application data: a list, as on the wire.
int selectProtocol(SSL* ssl, const unsigned char** selected, unsigned char* size, const unsigned char* offered,
                   unsigned offered_size, void*) {
  const auto* wanted = static_cast<const std::string*>(SSL_get_app_data(ssl));
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, reinterpret_cast<const unsigned char*>(wanted->data()),
                            static_cast<unsigned>(wanted->size()), offered, offered_size) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *selected = found;
  return SSL_TLSEXT_ERR_OK;
}

// Of the record (RFC 8446 §5.1) that `bytes` begin with. Of what is none, all of it: OpenSSL says what is wrong.
size_t recordSize(std::span<const uint8_t> bytes) {
  constexpr size_t kMaxFragment = (size_t{1} << 14) + 2048;  // RFC 5246 §6.2.3; OpenSSL refuses longer ones
  if (bytes[0] < SSL3_RT_CHANGE_CIPHER_SPEC || bytes[0] > SSL3_RT_APPLICATION_DATA) return bytes.size();
  if (bytes.size() < SSL3_RT_HEADER_LENGTH) return SSL3_RT_HEADER_LENGTH;
  const size_t fragment = size_t{bytes[3]} << 8 | bytes[4];
  return fragment <= kMaxFragment ? SSL3_RT_HEADER_LENGTH + fragment : bytes.size();
}

bool verifies(TlsServer::ClientAuth auth) {
  return auth == TlsServer::ClientAuth::kVerifyIfGiven || auth == TlsServer::ClientAuth::kRequireAndVerify;
}

void askForCertificate(SSL_CTX* context, TlsServer::ClientAuth auth) {
  // No chain is built where nobody asks who has signed it.
  if (!verifies(auth))
    SSL_CTX_set_cert_verify_callback(
        context, [](X509_STORE_CTX*, void*) { return 1; }, nullptr);
  switch (auth) {
    case TlsServer::ClientAuth::kNone:
      return SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
    case TlsServer::ClientAuth::kRequest:
    case TlsServer::ClientAuth::kVerifyIfGiven:
      return SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    case TlsServer::ClientAuth::kRequire:
    case TlsServer::ClientAuth::kRequireAndVerify:
      break;
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
}

}  // namespace

// What was read of the files at one time, with the keys of tickets: a session does not outlive the files.
struct TlsServer::Context {
  explicit Context(std::chrono::milliseconds ticket_life) : tickets(ticket_life) {}

  TicketKeys tickets;
  Owned<SSL_CTX> context;
};

TlsServer::~TlsServer() = default;

Result<std::shared_ptr<TlsServer>> TlsServer::make(Options options) {
  std::shared_ptr<TlsServer> server(new TlsServer(std::move(options)));
  if (auto loaded = server->reload(); !loaded) return tl::unexpected(loaded.error());
  return server;
}

Result<void> TlsServer::reload() {
  auto made = std::make_shared<Context>(options_.ticket_life);
  made->context.reset(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* context = made->context.get();
  if (context == nullptr) return fail(lastError());
  if (auto loaded = loadFiles(context,
                              {.certificate_file = options_.certificate_file,
                               .key_file = options_.key_file,
                               .ca_file = options_.ca_file,
                               .application_protocol = {}},
                              verifies(options_.client_auth) ? SystemStore::kFile : SystemStore::kNone);
      !loaded) {
    return loaded;
  }
  if (!options_.ca_file.empty()) SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(options_.ca_file.c_str()));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);  // RFC 8996, RFC 9325
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  askForCertificate(context, options_.client_auth);
  SSL_CTX_set_alpn_select_cb(context, &selectProtocol, nullptr);
  // Sessions are in the clients' tickets only.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  constexpr std::string_view kSessions = "idetcd";  // needed where clients have certificates
  SSL_CTX_set_session_id_context(context, reinterpret_cast<const unsigned char*>(kSessions.data()), kSessions.size());
  SSL_CTX_set_timeout(context, std::chrono::ceil<std::chrono::seconds>(options_.ticket_life).count());
  SSL_CTX_set_app_data(context, &made->tickets);
  SSL_CTX_set_tlsext_ticket_key_evp_cb(context, &onTicket);
  const std::lock_guard lock(mutex_);
  context_ = std::move(made);
  return {};
}

std::shared_ptr<TlsServer::Context> TlsServer::context() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

struct TlsStream::Impl : StreamHandler, std::enable_shared_from_this<TlsStream::Impl> {
  std::shared_ptr<TlsPeer::Impl> peer;         // whom we have connected to; null: it has connected to us
  std::shared_ptr<TlsServer::Context> server;  // then
  std::string protocols;                       // and what ALPN may come to
  std::unique_ptr<TcpConnection> connection;
  StreamHandler* handler = nullptr;
  Owned<SSL> ssl;
  BIO* from_peer = nullptr;  // memory, owned by `ssl`
  BIO* to_peer = nullptr;
  std::vector<uint8_t> arrived;  // of a client's handshake, the beginning of a record
  std::vector<uint8_t> queued;   // written before the handshake was over
  std::string failure;
  bool connected = false;
  bool paused = false;   // by the owner
  bool blocked = false;  // the peer does not read what the protocol itself has to say

  ~Impl() override {
    if (!ssl) return;
    // A connection that is simply given up must not make its session unusable.
    if (connected) SSL_set_shutdown(ssl.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_set_app_data(ssl.get(), nullptr);
  }

  // The stream is gone; one of our functions may still be running, which then holds `this`.
  void close() {
    handler = nullptr;
    if (server && connected && failure.empty()) {  // close_notify (RFC 8446 §6.1)
      SSL_shutdown(ssl.get());
      flush();
    }
    connection.reset();
  }

  void start() {
    const auto self = shared_from_this();
    if (server && !setUp()) return fail(lastError());
    connection->start(*this);
  }

  bool setUp() {
    ERR_clear_error();
    ssl.reset(SSL_new(server ? server->context.get() : peer->context->impl().context.get()));
    if (!ssl) return false;
    from_peer = BIO_new(BIO_s_mem());
    to_peer = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), from_peer, to_peer);
    if (server) {
      SSL_set_app_data(ssl.get(), &protocols);
      SSL_set_accept_state(ssl.get());
      return true;
    }
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
    if (!failure.empty()) return;  // nobody would read it
    const auto self = shared_from_this();
    if (server && !connected) {
      onRecords(bytes);
    } else {
      BIO_write(from_peer, bytes.data(), static_cast<int>(bytes.size()));
      connected ? read() : shakeHands();
    }
    if (!server || connection == nullptr || connection->isDrained()) return;
    blocked = true;
    connection->pauseReading();
  }

  // Until the handshake is over OpenSSL gets whole records of a client, and what they announce is looked at before.
  void onRecords(std::span<const uint8_t> bytes) {
    arrived.insert(arrived.end(), bytes.begin(), bytes.end());
    std::span<const uint8_t> rest = arrived;
    while (!rest.empty() && handler != nullptr && failure.empty()) {
      const size_t size = connected ? rest.size() : recordSize(rest);
      if (size > rest.size()) break;
      if (!connected && announcesTooMuch(rest.first(size))) return fail("the ClientHello is too large");
      BIO_write(from_peer, rest.data(), static_cast<int>(size));
      rest = rest.subspan(size);
      connected ? read() : shakeHands();
    }
    arrived = std::vector<uint8_t>(rest.begin(), rest.end());
    if (handler != nullptr) handler->onHandshakeStep();
  }

  // OpenSSL allocates what a ClientHello announces, up to 131 KB, before any of it has come. One that begins with a
  // shorter piece than its length needs is refused too.
  bool announcesTooMuch(std::span<const uint8_t> record) const {
    const OSSL_HANDSHAKE_STATE state = SSL_get_state(ssl.get());
    const bool may_begin = state == TLS_ST_BEFORE || state == TLS_ST_EARLY_DATA;  // and after a HelloRetryRequest
    if (!may_begin || record[0] != SSL3_RT_HANDSHAKE) return false;
    if (record.size() < SSL3_RT_HEADER_LENGTH + SSL3_HM_HEADER_LENGTH) return true;
    const auto size = record.subspan(SSL3_RT_HEADER_LENGTH + 1);  // behind the type
    return (size_t{size[0]} << 16 | size_t{size[1]} << 8 | size[2]) > SSL3_RT_MAX_PLAIN_LENGTH;
  }

  void applyPause() {
    const bool reads = !paused && !blocked && failure.empty();
    reads ? connection->resumeReading() : connection->pauseReading();
  }
  void onEnd() override {
    failure = connected ? "closed" : "closed during the TLS handshake";
    connected ? handler->onEnd() : handler->onError();
  }
  void onDrained() override {
    blocked = false;
    applyPause();
    if (connected) handler->onDrained();
  }
  void onError() override { handler->onError(); }

  void shakeHands() {
    ERR_clear_error();
    const int status = SSL_do_handshake(ssl.get());
    const int error = status == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl.get(), status);
    const std::string reason = error == SSL_ERROR_SSL ? lastError() : "TLS failed";
    flush();
    const auto self = shared_from_this();
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return;
    if (status != 1) {
      const long verdict = SSL_get_verify_result(ssl.get());
      return fail(verdict != X509_V_OK ? X509_verify_cert_error_string(verdict) : reason);
    }
    connected = true;
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
    connection->pauseReading();
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
    if (peer) peer->session.reset();  // whatever is wrong, it is not resumed
    handler->onError();
  }
};

TlsStream::TlsStream(TlsPeer& peer, std::unique_ptr<TcpConnection> connection) : impl_(std::make_shared<Impl>()) {
  impl_->peer = peer.impl();
  impl_->connection = std::move(connection);
}

TlsStream::TlsStream(const TlsServer& server, std::string_view protocol, std::unique_ptr<TcpConnection> connection)
    : impl_(std::make_shared<Impl>()) {
  impl_->server = server.context();
  impl_->protocols = static_cast<char>(protocol.size()) + std::string(protocol);
  impl_->connection = std::move(connection);
}

TlsStream::~TlsStream() { impl_->close(); }

void TlsStream::start(StreamHandler& handler) {
  impl_->handler = &handler;
  impl_->start();
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

void TlsStream::pauseReading() {
  impl_->paused = true;
  impl_->applyPause();
}

void TlsStream::resumeReading() {
  impl_->paused = false;
  impl_->applyPause();
}

bool TlsStream::isDrained() const { return impl_->connection->isDrained(); }
size_t TlsStream::queued() const { return impl_->connection->queued(); }
uint64_t TlsStream::taken() const { return impl_->connection->taken(); }
size_t TlsStream::held() const { return impl_->arrived.size(); }
void TlsStream::resetAtEnd() { impl_->connection->resetAtEnd(); }
const SocketAddress& TlsStream::remote() const { return impl_->connection->remote(); }
const SocketAddress& TlsStream::local() const { return impl_->connection->local(); }
bool TlsStream::isResumed() const { return SSL_session_reused(impl_->ssl.get()) == 1; }

}  // namespace idetcd::net
