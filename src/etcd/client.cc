#include "etcd/client.h"

#include <utility>

#include "etcd/client_internal.h"
#include "etcd/keep_alive_internal.h"

namespace idetcd::etcd {

Result<void> Client::validateEndpoint(std::string_view endpoint) {
  auto address = EndpointAddress::parse(endpoint);
  if (!address) return tl::unexpected<Error>(std::move(address.error()));
  return {};
}

Client::Client(CompletionThread& thread, Options options, Logger log)
    : impl_(std::make_unique<Impl>(thread, std::move(options), std::move(log))) {}

Client::~Client() {
  // The stream keeps itself alive until its end, which stop() brings about if the post comes too late.
  if (impl_->keep_alive) {
    impl_->thread.post([stream = std::move(impl_->keep_alive)] { stream->cancel(); });
  }
}

CompletionThread& Client::thread() { return impl_->public_thread; }

std::string Client::currentEndpoint() const { return impl_->endpoints->name(impl_->endpoints->current()); }

}  // namespace idetcd::etcd
