// TLS over TCP, to a server we connect to and to clients that connect to us. Loop thread only, but for TlsContext and
// TlsServer, which loops may share.
//
// Of a server (RFC 7858, RFC 8310 strict) the certificate must be valid for the configured name or address, or nothing is
// sent to it. Sessions are resumed, on both sides.
#pragma once

#include "base/result.h"
#include "net/stream.h"
#include "net/tcp.h"

namespace idetcd::net {

// Shared by the connections to some servers.
class TlsContext {
 public:
  struct Options {  // files in PEM; all may be empty
    std::string certificate_file;
    std::string key_file;
    std::string ca_file;               // empty: the system's store
    std::string application_protocol;  // offered by ALPN
  };

  // Blocks on the file system.
  static Result<std::shared_ptr<TlsContext>> make(const Options& options);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  struct Impl;
  Impl& impl() { return *impl_; }  // for tls_stream.cc only

 private:
  explicit TlsContext(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One server: the identity that it must prove, and the session to resume.
class TlsPeer {
 public:
  // `name` empty: the certificate must be for `address`.
  TlsPeer(std::shared_ptr<TlsContext> context, std::string name, const IpAddress& address);
  ~TlsPeer();
  TlsPeer(const TlsPeer&) = delete;
  TlsPeer& operator=(const TlsPeer&) = delete;

  struct Impl;
  const std::shared_ptr<Impl>& impl() { return impl_; }  // for tls_stream.cc only

 private:
  std::shared_ptr<Impl> impl_;
};

// What this process shows clients that connect to it, and asks of them. Any thread.
class TlsServer {
 public:
  enum class ClientAuth : uint8_t {
    kNone,
    kRequest,           // a certificate is asked for; whatever comes, or nothing, is good
    kRequire,           // it must be there, whoever has signed it
    kVerifyIfGiven,     // it need not be there, but must be signed by the CA
    kRequireAndVerify,  // both
  };
  struct Options {  // files in PEM
    std::string certificate_file;  // with those of the CAs between it and the root
    std::string key_file;
    std::string ca_file;  // that signs clients' certificates; empty: the system's store
    ClientAuth client_auth = ClientAuth::kNone;
    // A key that seals session tickets is used for so long, and opens them for as long again.
    std::chrono::milliseconds ticket_life = std::chrono::hours(1);
    friend bool operator==(const Options&, const Options&) = default;
  };

  // Blocks on the file system.
  static Result<std::shared_ptr<TlsServer>> make(Options options);
  ~TlsServer();
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;

  // Reads the files anew, for connections from now on. An error: those go on with what was read before. Blocks.
  Result<void> reload();

  struct Context;
  std::shared_ptr<Context> context() const;  // for tls_stream.cc only

 private:
  explicit TlsServer(Options options) : options_(std::move(options)) {}
  const Options options_;
  mutable std::mutex mutex_;
  std::shared_ptr<Context> context_;  // guarded by mutex_
};

// onConnected() comes after the handshake.
class TlsStream final : public BoundedStream {
 public:
  TlsStream(TlsPeer& peer, std::unique_ptr<TcpConnection> connection);
  // An accepted connection. `protocol`: of ALPN; a client that offers others only is refused (RFC 7301 §3.2).
  TlsStream(const TlsServer& server, std::string_view protocol, std::unique_ptr<TcpConnection> connection);
  ~TlsStream() override;
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  void start(StreamHandler& handler) override;
  bool write(std::vector<uint8_t>&& bytes) override;
  std::string failure() const override;
  void pauseReading() override;
  void resumeReading() override;
  bool isDrained() const override;
  size_t queued() const override;
  uint64_t taken() const override;
  size_t held() const override;
  void resetAtEnd() override;
  const SocketAddress& remote() const override;
  const SocketAddress& local() const override;

  // After onConnected(): whether an earlier session goes on.
  bool isResumed() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace idetcd::net
