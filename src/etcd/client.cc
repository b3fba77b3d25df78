#include "etcd/client.h"

#include "etcd/client_internal.h"
#include "etcd/keep_alive_internal.h"

namespace idetcd::etcd {

Result<void> Client::validateEndpoint(std::string_view endpoint) {
  auto address = EndpointAddress::parse(endpoint);
  if (!address) return tl::unexpected<Error>(std::move(address.error()));
  return {};
}

std::string Client::endpointHost(std::string_view endpoint) {
  const std::string name = EndpointAddress::parse(endpoint).value().name;
  const std::string host = name.substr(0, name.rfind(':'));
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

Result<void> Client::validateOptions(const Options& options) {
  if (options.endpoints.empty()) return fail("there is no endpoint");
  const EndpointAddress* first = nullptr;
  std::vector<EndpointAddress> addresses;
  for (const std::string& text : options.endpoints) {
    auto address = EndpointAddress::parse(text);
    if (!address) return tl::unexpected<Error>(std::move(address.error()));
    if (options.tls && !address->usesTls(options))
      return fail(fmt::format("endpoint '{}' is without TLS, but tls is configured: use https", text));
    addresses.push_back(std::move(*address));
  }
  first = &addresses.front();
  for (const EndpointAddress& address : addresses) {
    if (address.usesTls(options) != first->usesTls(options))
      return fail(fmt::format("endpoints with and without TLS: {} and {}", first->name, address.name));
  }
  if (options.tls && options.tls->certificate_file.empty() != options.tls->key_file.empty())
    return fail("a certificate needs a key, and a key a certificate");
  if (options.credentials && options.credentials->user.empty()) return fail("the user's name is empty");
  return {};
}

Result<void> Client::checkTlsFiles(const Options& options) {
  const auto address = EndpointAddress::parse(options.endpoints.front());
  if (!address || !address->usesTls(options)) return {};
  TlsSource source(options.tls.value_or(TlsFiles{}));
  const TlsSource::Look look = source.look();
  if (look.change == TlsSource::Change::kUnusable) return fail(look.message);
  return {};
}

Client::Client(CompletionThread& thread, Options options, const Logger& log)
    : impl_(std::make_unique<Impl>(thread, std::move(options), log)) {
  assert(validateOptions(impl_->options));
}

Client::~Client() {
  // The stream keeps itself alive until its end, which stop() brings about if the post comes too late.
  if (impl_->keep_alive) {
    impl_->thread.post([stream = std::move(impl_->keep_alive)] { stream->cancel(); });
  }
}

CompletionThread& Client::thread() { return impl_->public_thread; }

std::vector<std::string> Client::endpoints() const { return impl_->options.endpoints; }

}  // namespace idetcd::etcd
