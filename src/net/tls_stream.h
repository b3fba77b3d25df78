// TLS to a server we connect to (RFC 7858, RFC 8310 strict): the peer's certificate must be valid for the configured
// name or address, or nothing is sent to it. Sessions are resumed. Loop thread only, but for TlsContext, which loops
// may share.
#pragma once

#include "base/ip_address.h"
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

// onConnected() comes after the handshake.
class TlsStream : public Stream {
 public:
  TlsStream(TlsPeer& peer, std::unique_ptr<TcpConnection> connection);
  ~TlsStream() override;
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  void start(StreamHandler& handler) override;
  bool write(std::vector<uint8_t>&& bytes) override;
  std::string failure() const override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace idetcd::net
